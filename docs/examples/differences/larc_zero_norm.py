import numpy as np

from lockstep import reference
from lockstep.reference import strict

bias = reference.Variable("bias", np.zeros(2, np.float32))
pairs = [(np.float32([1, 2]), bias)]
larc = {"larc_eta": 0.01}

for name, lockstep in ("default", reference), ("strict", strict):
    for rate in 0.1, 0.0:
        [(g, _)] = lockstep.post_process_gradients(pairs, [], rate, None, larc)
        print(f"{name}: at rate {rate} the gradient is {g.tolist()}")
