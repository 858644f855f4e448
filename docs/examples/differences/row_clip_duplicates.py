import numpy as np

from lockstep import reference
from lockstep.reference import strict

named = reference.Rows(np.array([0, 0, 0]), np.zeros((3, 2), np.float32), (2, 2))
for name, lockstep in ("default", reference), ("strict", strict):
    table = lockstep.Variable("table", [[4.0, 0.0], [4.0, 0.0]], np.float32)
    sgd = lockstep.GradientDescentOptimizer(1.0)
    opt = lockstep.VariableClippingOptimizer(sgd, {table: [1]}, max_norm=1.0)
    opt.apply_gradients([(named, table)])
    print(f"{name}: {table.value.tolist()}")
