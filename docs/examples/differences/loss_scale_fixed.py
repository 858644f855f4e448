import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0], np.float32)
    sgd = lockstep.GradientDescentOptimizer(1.0)
    opt = lockstep.MixedPrecisionLossScaleOptimizer(sgd, 8)
    opt.apply_gradients([(np.array([np.nan], np.float32), w)])
    print(f"{name}: {w.value.tolist()} {opt.last_step.reason}")
