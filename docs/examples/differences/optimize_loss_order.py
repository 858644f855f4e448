import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w, b = (lockstep.Variable(n, np.ones(2, np.float16)) for n in "wb")
    step = lockstep.optimize_loss(
        lambda: [np.array([np.nan, 1.0], np.float16), np.ones(2, np.float16)],
        "SGD",
        {},
        lambda step: 0.5,
        [w, b],
        dtype="mixed",
        loss_scaling="Backoff",
        clip_gradients=1.0,
    )
    step()
    print(f"{name}:", ", ".join(step.pipeline))
    print(f"{name}: {step.last_step.reason}")
