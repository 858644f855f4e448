import numpy as np

from lockstep import reference
from lockstep.reference import strict

pairs = [(np.float32([3]), "v"), (np.float16([4]), "w")]
for name, lockstep in ("default", reference), ("strict", strict):
    try:
        _, norm = lockstep.clip_gradients_by_global_norm(pairs)
        print(f"{name}: norm {norm.item()} ({norm.dtype})")
    except TypeError as error:
        print(f"{name}: {error}")
