import numpy as np

from lockstep import reference
from lockstep.reference import strict

rows = reference.Rows(np.array([0, 0]), np.float32([[3], [5]]), (2, 1))
for name, lockstep in ("default", reference), ("strict", strict):
    try:
        _, norm = lockstep.clip_gradients_by_global_norm([(rows, "w")], 4.0)
        print(f"{name}: norm {norm.item()}")
    except ValueError as error:
        print(f"{name}: {error}")
