import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0], np.float16)
    sgd = lockstep.GradientDescentOptimizer(0.5)
    opt = lockstep.MixedPrecisionLossScaleOptimizer(sgd, 8)
    try:
        opt.minimize(lambda: [np.ones(1, np.float16)], var_list=[w])
        print(f"{name}: {w.value.tolist()}")
    except TypeError as error:
        print(f"{name}: {error}")
