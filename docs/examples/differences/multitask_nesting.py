import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    inner = lockstep.GradientDescentOptimizer(0.5)
    wrapped = lockstep.MultitaskOptimizerWrapper(inner)
    try:
        lockstep.MultitaskOptimizerWrapper(wrapped)
        print(f"{name}: a wrapper around a wrapper is accepted")
    except TypeError as error:
        print(f"{name}: {error}")
    w = lockstep.Variable("w", [2.0], np.float32)
    clipping = lockstep.VariableClippingOptimizer(inner, {w: [0]}, max_norm=1.0)
    lockstep.MultitaskOptimizerWrapper(clipping).apply_gradients([(np.float32([0]), w)])
    print(f"{name}: around row clipping, a gradient of zero: {w.value.tolist()}")
