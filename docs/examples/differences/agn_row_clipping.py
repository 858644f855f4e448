import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [[3.0, 4.0]], np.float32)
    getter = lockstep.AGNCustomGetter("/cpu:0")
    getter([w])
    sgd = lockstep.GradientDescentOptimizer(1.0)
    rows = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm=5.0)
    opt = lockstep.AGNOptimizer(rows, 1, getter, communication_period=2)
    opt.get_init_op(0)
    for _ in range(4):  # two pushes
        opt.apply_gradients([(np.float32([[-2.0, 0.0]]), w)])
        print(f"{name}: norm {np.linalg.norm(w.value):.6g}, weights {w.value[0]}")
