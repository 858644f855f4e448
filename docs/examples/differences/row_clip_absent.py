import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    zero, absent = (lockstep.Variable(n, [4.0], np.float32) for n in ("z", "a"))
    sgd = lockstep.GradientDescentOptimizer(1.0)
    dims = {zero: [0], absent: [0]}
    opt = lockstep.VariableClippingOptimizer(sgd, dims, max_norm=1.0)
    opt.apply_gradients([(np.float32([0.0]), zero), (None, absent)])
    print(f"{name}: zero gradient {zero.value.item()}, absent {absent.value.item()}")
