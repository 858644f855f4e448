import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [0.0])
    step = lockstep.optimize_loss(
        lambda x: [np.array([x])], "SGD", {}, lambda step: 1.0, [w], iter_size=2
    )
    for x in 1.0, 3.0:
        step(x)
        print(f"{name}: {w.value.tolist()} after {step.global_step.value} steps")
