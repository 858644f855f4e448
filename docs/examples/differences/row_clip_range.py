import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [[4.0, 0.0]], np.float32)
    sgd = lockstep.GradientDescentOptimizer(1.0)
    try:
        opt = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm=-1.0)
        opt.apply_gradients([(np.zeros((1, 2), np.float32), w)])
        print(f"{name}: {w.value.tolist()}")
    except ValueError as error:
        print(f"{name}: {error}")
