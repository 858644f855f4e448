import numpy as np

from lockstep import reference
from lockstep.reference import strict
from lockstep.reference.post_process import SummaryRecord

for name, lockstep in ("default", reference), ("strict", strict):
    for loss_scaling in 128.0, "Backoff":
        step = lockstep.optimize_loss(
            lambda: [np.ones(1)],
            "SGD",
            {},
            lambda step: 0.5,
            [reference.Variable("w", [1.0])],
            dtype="mixed",
            loss_scaling=loss_scaling,
            summaries=["loss_scale"],
        )
        step.recorder = SummaryRecord()
        step()
        print(f"{name}, {loss_scaling}: {step.recorder.scalars}")
