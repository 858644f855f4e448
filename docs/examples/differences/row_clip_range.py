import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    for max_norm in -1.0, 0.0, np.inf, np.nan:
        w = lockstep.Variable("w", [[4.0, 0.0]], np.float32)
        sgd = lockstep.GradientDescentOptimizer(1.0)
        try:
            opt = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm)
            opt.apply_gradients([(np.zeros((1, 2), np.float32), w)])
            print(f"{name}: [[4.0, 0.0]] clipped to {max_norm} is {w.value.tolist()}")
        except ValueError as error:
            print(f"{name}: {error}")
