import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0])
    sgd = lockstep.GradientDescentOptimizer(0.125)
    try:
        lockstep.optimize_loss(lambda: [np.ones(1)], sgd, None, lambda step: 0.5, [w])()
        print(f"{name}: {w.value.tolist()}")
    except TypeError as error:
        print(f"{name}: {type(error).__name__}: {error}")
