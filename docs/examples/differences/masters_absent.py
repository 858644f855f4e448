import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    v = lockstep.Variable("v", [1.0], np.float16)
    w = lockstep.Variable("w", [1.0], np.float16)
    sgd = lockstep.GradientDescentOptimizer(0.5)
    opt = lockstep.MixedPrecisionOptimizerWrapper(sgd, 8.0)
    try:
        opt.minimize(lambda: [np.ones(1, np.float16), None], var_list=[v, w])
        print(f"{name}: {v.value.tolist()} {w.value.tolist()}")
    except ValueError as error:
        print(f"{name}: {error}")
