from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    momentum = lockstep.MomentumOptimizer(1.0, 0.9)
    opt = lockstep.MixedPrecisionLossScaleOptimizer(momentum, 8)
    print(f"{name}: {opt.get_slot_names()}")
