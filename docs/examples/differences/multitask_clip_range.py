import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    try:
        [(clipped, _)], _ = lockstep.clip_gradients_by_global_norm(
            [(np.float32([3]), "w")], clip_norm=-1.0
        )
        print(f"{name}: clipped {clipped.item()}")
    except ValueError as error:
        print(f"{name}: {error}")
