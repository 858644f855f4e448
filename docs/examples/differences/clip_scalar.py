import numpy as np

from lockstep import reference
from lockstep.reference import strict

scale = np.float32(3)
for name, lockstep in ("default", reference), ("strict", strict):
    (clipped,), _ = lockstep.clip_by_global_norm([scale], 1.0, np.float32(5))
    print(f"{name}: {clipped.tolist()}, shape {list(clipped.shape)}")
