import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    for given in 8, np.float32(8), "Backoff":
        w = lockstep.Variable("w", [1.0], np.float16)
        sgd = lockstep.GradientDescentOptimizer(0.5)
        try:
            opt = lockstep.MixedPrecisionOptimizerWrapper(sgd, given)
            print(f"{name}: made with {given!r}")
            opt.minimize(lambda: [np.ones(1, np.float16)], var_list=[w])
            print(f"{name}: {w.value.tolist()}")
        except (AttributeError, ValueError) as error:
            print(f"{name}: {type(error).__name__}: {error}")
