import numpy as np

from lockstep import reference
from lockstep.reference import strict

row = np.float32([1e-30, 2e-30])  # far below the norm
for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [row])
    sgd = lockstep.GradientDescentOptimizer(1.0)
    opt = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm=1e-10)
    opt.apply_gradients([(np.zeros((1, 2), np.float32), w)])
    print(f"{name}: {w.value[0].tolist()}")
