import numpy as np

from lockstep import reference
from lockstep.reference import strict

table = reference.Variable("table", np.ones((3, 1), np.float32))
rows = reference.Rows(np.array([1]), np.float32([[4]]), (3, 1))
larc = {"larc_eta": 0.5, "larc_mode": "scale"}

for name, lockstep in ("default", reference), ("strict", strict):
    [(g, _)] = lockstep.post_process_gradients([(rows, table)], [], 0.1, None, larc)
    print(f"{name}: {type(g).__name__}")
