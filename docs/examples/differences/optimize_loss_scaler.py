import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [1.0])
    given = lambda: [np.ones(1)], "SGD", {}, lambda step: 0.5, [w]
    try:
        step = lockstep.optimize_loss(*given, dtype="float32", loss_scaling="Backoff")
        step()
        print(f"{name}: {step.pipeline}, {step.scaler.state}")
    except ValueError as error:
        print(f"{name}: {error}")
