import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    for num_worker in 1, 64, 0:
        w = lockstep.Variable("w", [4.0], np.float32)
        getter = lockstep.AGNCustomGetter("/cpu:0")
        getter([w])
        sgd = lockstep.GradientDescentOptimizer(0.5)
        try:
            opt = lockstep.AGNOptimizer(sgd, num_worker, getter, 1)
            opt.get_init_op(0)
            opt.apply_gradients([(np.ones(1, np.float32), w)])
            print(f"{name}, {num_worker}: {w.value.tolist()}")
        except ValueError as error:
            print(f"{name}, {num_worker}: {error}")
