import numpy as np

from lockstep import reference as lockstep

a = lockstep.Variable("a", [3.0], np.float32)
b = lockstep.Variable("b", [4.0], np.float32)
momentum = lockstep.MomentumOptimizer(0.5, momentum=0.5)
opt = lockstep.MultitaskOptimizerWrapper(momentum)


def step(present):
    def loss():  # NumPy cannot differentiate: it returns the gradients
        return [2 * a.value, 2 * np.float32(present) * b.value]

    pairs = opt.compute_gradients(loss, [a, b])
    clipped, norm = lockstep.clip_gradients_by_global_norm(pairs, 5.0)
    opt.apply_gradients(clipped)
    slot = opt.get_slot(b, "momentum")
    print(f"norm {norm.item()}, b {b.value.item()}, momentum of b {slot.item()}")


step(present=1.0)
step(present=0.0)  # no example of b's task in this batch
