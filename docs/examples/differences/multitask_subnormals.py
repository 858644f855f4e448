import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0], np.float32)
    inner = lockstep.AdagradOptimizer(0.5)
    opt = lockstep.MultitaskOptimizerWrapper(inner)
    opt.apply_gradients([(np.float32([1e-40]), w)])
    updated = inner.get_slot(w, "accumulator") is not None
    print(f"{name}: {'updated' if updated else 'left alone'}")
