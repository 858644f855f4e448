import numpy as np

from lockstep import reference
from lockstep.reference import strict

row = np.float32([-292.3, -60.5, 30.6, 25.0])  # its norm is 301
for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [row])
    sgd = lockstep.GradientDescentOptimizer(1.0)
    opt = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm=0.25)
    for _ in range(2):
        opt.apply_gradients([(np.zeros((1, 4), np.float32), w)])
        above = np.linalg.norm(w.value.astype(np.float64)) / 0.25 - 1
        print(f"{name}: norm / max_norm - 1 = {above:.1e}")
