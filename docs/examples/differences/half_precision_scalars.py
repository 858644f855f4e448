import numpy as np

from lockstep import reference
from lockstep.interface import Rows
from lockstep.reference import strict

one_row = Rows(np.array([0]), np.float16([[1e-4]]), (2, 1))
for name, lockstep in ("default", reference), ("strict", strict):
    table = lockstep.Variable("table", [[1.0], [1.0]], np.float16)
    adam = lockstep.AdamOptimizer(0.01)
    for _ in range(3):
        adam.apply_gradients([(one_row, table)])
    slot = adam.get_slot(table, "v")
    print(f"{name}: weights {table.value.ravel().tolist()}, slot v {slot.dtype}")
