import numpy as np

from lockstep import reference
from lockstep.reference import strict

a, b = (reference.Variable(name, np.ones(1, np.float32)) for name in "ab")
pairs = [(np.float32([2]), a), (None, b)]

for name, lockstep in ("default", reference), ("strict", strict):
    try:
        clipped = lockstep.clip_gradients_by_norm(pairs, 1.0)
        print(f"{name}: {[None if g is None else g.tolist() for g, _ in clipped]}")
    except ValueError as error:
        print(f"{name}: {error}")
