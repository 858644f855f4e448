import numpy as np

from lockstep import reference as lockstep

kernel = lockstep.Variable("kernel", [3.0, 4.0], np.float32)
bias = lockstep.Variable("bias", [0.0, 0.0], np.float32)
pairs = [(np.float32([60, 80]), kernel), (np.float32([1, 2]), bias)]


def show(processed):
    print([[round(float(x), 4) for x in gradient] for gradient, _ in processed])


larc = {"larc_eta": 0.01, "larc_mode": "clip"}
show(lockstep.post_process_gradients(pairs, [], 0.1, None, larc))
show(lockstep.clip_gradients_by_norm(pairs, 10.0))
