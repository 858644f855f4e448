import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    sgd = lockstep.GradientDescentOptimizer(1.0)
    v, w = (lockstep.Variable(n, [4.0], np.float32) for n in "vw")
    opt = lockstep.VariableClippingOptimizer(sgd, {v: [0], w: [0]}, max_norm=1.0)
    opt.apply_gradients([(np.float32([0.0]), v), (None, w)])
    print(f"{name}: zero gradient {v.value.item()}, absent {w.value.item()}")

    overflow = np.float32([np.inf])
    scaled = lockstep.MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
    around = lockstep.VariableClippingOptimizer(scaled, {v: [0]}, max_norm=0.5)
    around.apply_gradients([(overflow, v)])
    clipping = lockstep.VariableClippingOptimizer(sgd, {w: [0]}, max_norm=0.5)
    inside = lockstep.MixedPrecisionLossScaleOptimizer(clipping, "dynamic")
    inside.apply_gradients([(overflow, w)])
    print(f"{name}: skipped, around {v.value.item()}, inside {w.value.item()}")
