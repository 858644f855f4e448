import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0], np.float16)
    sgd = lockstep.GradientDescentOptimizer(1.0)
    opt = lockstep.MixedPrecisionOptimizerWrapper(sgd, 1024.0)
    opt.minimize(lambda: [np.array([100.0], np.float16)], var_list=[w])
    print(f"{name}: {w.value.tolist()} {opt.last_step.reason}")
