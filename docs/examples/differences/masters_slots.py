import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0], np.float16)
    momentum = lockstep.MomentumOptimizer(0.5, 0.9)
    opt = lockstep.MixedPrecisionOptimizerWrapper(momentum, 8.0)
    opt.minimize(lambda: [np.ones(1, np.float16)], var_list=[w])
    print(f"{name}: {opt.get_slot(w, 'momentum')} {opt.get_slot_names()}")
