import numpy as np

from lockstep import reference
from lockstep.reference import strict

rows = reference.Rows(np.array([1]), np.float32([[np.inf]]), dense_shape=None)
for name, lockstep in ("default", reference), ("strict", strict):
    scale = lockstep.DynamicLossScale(8.0)
    try:
        scale.update([rows])
        print(f"{name}: 8.0 -> {scale()}")
    except ValueError as error:
        print(f"{name}: {error}")
