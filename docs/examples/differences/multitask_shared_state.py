import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0], np.float32)
    step = lockstep.Variable("global_step", 0, np.int64)
    inner = lockstep.AdamOptimizer(0.5, beta1=0.5)
    opt = lockstep.MultitaskOptimizerWrapper(inner)
    for gradient in 1, 0, 0:
        opt.apply_gradients([(np.float32([gradient]), w)], global_step=step)
    power = inner.shared["beta1_power"]
    print(f"{name}: beta1_power {power}, global_step {step.value}")
