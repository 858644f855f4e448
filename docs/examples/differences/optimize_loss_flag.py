import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [0.0])
    try:
        step = lockstep.optimize_loss(
            lambda: [np.ones(1)],
            "SGD",
            {},
            lambda step: 1.0,
            [w],
            on_horovod=True,
            iter_size=2,
        )
        step()
        print(f"{name}: {step.last_step.reason}")
    except ValueError as error:
        print(f"{name}: {type(error).__name__}: {error}")
