import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [4.0], np.float32)
    getter = lockstep.AGNCustomGetter("/cpu:0")
    getter([w])
    opt = lockstep.AGNOptimizer(lockstep.GradientDescentOptimizer(0.5), 1, getter)
    pairs = [(np.ones(1, np.float32), w)]
    try:
        opt.apply_gradients(pair for pair in pairs)
        print(f"{name}: {w.value.tolist()}")
    except ValueError as error:
        print(f"{name}: {error}")
