import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0], np.float32)
    inner = lockstep.MomentumOptimizer(0.5, momentum=0.5)
    lockstep.MultitaskOptimizerWrapper(inner)
    inner.apply_gradients([(np.float32([1]), w)])
    inner.apply_gradients([(np.float32([0]), w)])  # used directly, not the wrapper
    print(f"{name}: momentum {inner.get_slot(w, 'momentum').item()}")
