import keras

from lockstep import keras3 as lockstep

a = keras.Variable([3.0], name="a")
b = keras.Variable([4.0], name="b")
momentum = keras.optimizers.SGD(0.5, momentum=0.5)
opt = lockstep.MultitaskOptimizerWrapper(momentum)


def step(present):
    def loss():
        return keras.ops.sum(a**2) + present * keras.ops.sum(b**2)

    pairs = opt.compute_gradients(loss, [a, b])
    clipped, norm = lockstep.clip_gradients_by_global_norm(pairs, 5.0)
    opt.apply_gradients(clipped)
    slot = opt.get_slot(b, "momentum").numpy() / -0.5  # Keras keeps -rate times it
    print(f"norm {norm.numpy()}, b {b.numpy().item()}, momentum of b {slot.item()}")


step(present=1.0)
step(present=0.0)  # no example of b's task in this batch
