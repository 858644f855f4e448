import numpy as np

from lockstep import reference
from lockstep.reference import strict

pairs = [(np.float16([300, 400]), "w")]
for name, lockstep in ("default", reference), ("strict", strict):
    [(clipped, _)], norm = lockstep.clip_gradients_by_global_norm(pairs, 500.0)
    print(f"{name}: norm {norm.item()}, clipped {clipped.tolist()}")
