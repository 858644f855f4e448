import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [[300.0, 400.0]], np.float16)
    sgd = lockstep.GradientDescentOptimizer(1.0)
    opt = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm=2.5)
    opt.apply_gradients([(np.zeros((1, 2), np.float16), w)])
    print(f"{name}: {w.value.tolist()}")
