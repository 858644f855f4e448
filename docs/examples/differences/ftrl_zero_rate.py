import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0], np.float32)
    try:
        lockstep.FtrlOptimizer(0.0).apply_gradients([(np.float32([1]), w)])
        print(f"{name}: w {w.value.item()}")
    except ValueError as error:
        print(f"{name}: {error}")
