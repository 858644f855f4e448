import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    w = lockstep.Variable("w", [8.0], np.float32)
    opt = lockstep.NovoGrad(learning_rate=0.5, beta1=0.0, beta2=0.5)
    for gradient in (4, 28, 4):
        before = w.value.item()
        opt.apply_gradients([(np.float32([gradient]), w)])
        v = opt.get_slot(w, "second_moment").item()
        moved = before - w.value.item()
        print(f"{name}: gradient {gradient}, stored {v:g}, moved {moved:.3f}")
