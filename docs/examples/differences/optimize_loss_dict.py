import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    params = {"weight_decay": 0.5}
    for _ in range(2):
        w = lockstep.Variable("w", [1.0])
        step = lockstep.optimize_loss(
            lambda: [np.zeros(1)], "AdamW", params, lambda step: 0.5, [w]
        )
        step()
        print(f"{name}: {w.value.tolist()}, the dict is as it was:", end=" ")
        print(params == {"weight_decay": 0.5})
