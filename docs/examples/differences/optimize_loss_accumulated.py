import numpy as np

from lockstep import reference
from lockstep.reference import strict

rows = reference.Rows(np.array([1]), np.ones((1, 2)), (2, 2))
for name, lockstep in ("default", reference), ("strict", strict):
    for gradient in rows, None:
        w, b = lockstep.Variable("w", np.zeros((2, 2))), lockstep.Variable("b", [0.0])
        step = lockstep.optimize_loss(
            lambda gradient=gradient: [gradient, np.ones(1)],
            "SGD",
            {},
            lambda step: 1.0,
            [w, b],
            on_horovod=True,
            iter_size=2,
            skip_update_ph=False,
        )
        try:
            step()
            print(f"{name}: {w.value.tolist()} {b.value.tolist()}")
        except (AttributeError, ValueError) as error:
            print(f"{name}: {type(error).__name__}: {error}")
