import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [4.0], np.float32)
    getter = lockstep.AGNCustomGetter("/cpu:0")
    getter([w])
    momentum = lockstep.MomentumOptimizer(0.5, 0.9)
    opt = lockstep.AGNOptimizer(momentum, 1, getter)
    opt.apply_gradients([(np.ones(1, np.float32), w)])
    print(f"{name}: {opt.get_slot(w, 'momentum')} {opt.get_slot_names()}")
