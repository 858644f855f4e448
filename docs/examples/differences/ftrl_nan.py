import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0, 1.0], np.float32)
    ftrl = lockstep.FtrlOptimizer(0.25)
    ftrl.apply_gradients([(np.float32([np.nan, 1]), w)])
    print(f"{name}: w {w.value.tolist()}")
