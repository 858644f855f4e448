import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [4.0], np.float32)
    getter = lockstep.AGNCustomGetter("/cpu:0")
    getter([w])
    sgd = lockstep.GradientDescentOptimizer(0.5)
    opt = lockstep.AGNOptimizer(sgd, 1, getter, communication_period=1)
    opt.apply_gradients([(np.ones(1, np.float32), w)])  # get_init_op was not run
    print(f"{name}: {w.value.tolist()}")
