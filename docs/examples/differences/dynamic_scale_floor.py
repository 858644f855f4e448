import numpy as np

from lockstep import reference
from lockstep.reference import strict

overflow = [np.float32([np.inf])]
for name, lockstep in ("default", reference), ("strict", strict):
    scale = lockstep.DynamicLossScale(0.25)
    scale.update(overflow)
    print(f"{name}: 0.25 -> {scale()}")
    for arguments in {"multiplier": 0.5}, {"increment_period": 0}:
        try:
            lockstep.DynamicLossScale(8.0, **arguments)
            print(f"{name}: {arguments} accepted")
        except ValueError as error:
            print(f"{name}: {error}")
scale = reference.DynamicLossScale(8.0, floor=4.0)
for _ in range(3):
    scale.update(overflow)
print(f"floor=4.0: 8.0 -> {scale()}")
