import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    for clip_norm in -1.0, 0.0, np.inf, np.nan:
        pairs = [(np.float32([3]), "w")]
        try:
            [(clipped, _)], _ = lockstep.clip_gradients_by_global_norm(pairs, clip_norm)
            print(f"{name}: 3.0 clipped to {clip_norm} is {clipped.item()}")
        except ValueError as error:
            print(f"{name}: {error}")
