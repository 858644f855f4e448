import numpy as np

from lockstep import reference
from lockstep.reference import strict

pairs = [(np.float32([np.inf]), "v"), (np.float32([1]), "w")]
for name, lockstep in ("default", reference), ("strict", strict):
    clipped, norm = lockstep.clip_gradients_by_global_norm(pairs)
    print(f"{name}: norm {norm.item()}, clipped {[g.item() for g, _ in clipped]}")
try:
    reference.clip_gradients_by_global_norm(pairs, error_if_nonfinite=True)
except ValueError as error:
    print(f"error_if_nonfinite: {error}")
