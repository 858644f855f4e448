import numpy as np

from lockstep import reference
from lockstep.reference import strict

table = reference.Variable("table", np.zeros((3, 2), np.float32))
rows = reference.Rows(np.array([1, 1]), np.float32([[3, 0], [3, 0]]), (3, 2))

for name, lockstep in ("default", reference), ("strict", strict):
    [(clipped, _)] = lockstep.clip_gradients_by_norm([(rows, table)], 1.0)
    print(f"{name}: row 1 gets {clipped.values.sum(axis=0).tolist()}")
