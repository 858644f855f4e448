import numpy as np

from lockstep import reference
from lockstep.reference import strict

named = reference.Rows(np.array([1]), np.zeros((1, 1), np.float32), (2, 1))
for name, lockstep in ("default", reference), ("strict", strict):
    table = lockstep.Variable("table", [[3.0], [4.0]], np.float32)
    sgd = lockstep.GradientDescentOptimizer(1.0)
    opt = lockstep.VariableClippingOptimizer(sgd, {table: [-2]}, max_norm=2.5)
    opt.apply_gradients([(named, table)])
    print(f"{name}: {table.value.tolist()}")
