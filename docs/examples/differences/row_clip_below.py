import numpy as np

from lockstep import reference
from lockstep.reference import strict

row = np.float32([0.9, 0.4, 0.3])  # its norm is 1.03
for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [row])
    sgd = lockstep.GradientDescentOptimizer(1.0)
    opt = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm=3.0)
    for _ in range(3):
        opt.apply_gradients([(np.zeros((1, 3), np.float32), w)])
    print(f"{name}: moved by {(w.value[0] - row).tolist()}")
