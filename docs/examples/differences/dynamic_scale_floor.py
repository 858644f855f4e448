import numpy as np

from lockstep import reference
from lockstep.reference import strict

overflow = [np.array([np.inf], np.float32)]
for name, lockstep in ("default", reference), ("strict", strict):
    scale = lockstep.DynamicLossScale(0.25)
    scale.update(overflow)
    print(f"{name}: 0.25 -> {scale()}")
    try:
        print(f"{name}: {lockstep.DynamicLossScale(8.0, multiplier=0.5)}")
    except ValueError as error:
        print(f"{name}: {error}")
