import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    for limit in -1.0, 0.0:
        try:
            (clipped,), _ = lockstep.clip_by_global_norm(
                [np.float32([3, 4])], limit, np.float32(5)
            )
            print(f"{name}: {clipped.tolist()}")
        except ValueError as error:
            print(f"{name}: {error}")
