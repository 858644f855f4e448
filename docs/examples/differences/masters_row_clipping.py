import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [[3.0, 4.0]], np.float16)
    sgd = lockstep.GradientDescentOptimizer(1.0)
    rows = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm=2.5)
    opt = lockstep.MixedPrecisionOptimizerWrapper(rows, 8.0)
    pairs = opt.compute_gradients(lambda: [np.zeros((1, 2), np.float16)], [w])
    opt.apply_gradients(pairs)
    print(f"{name}: {w.value.tolist()}")
