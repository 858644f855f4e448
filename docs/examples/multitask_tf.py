import tensorflow as tf

from lockstep import tf as lockstep

a = tf.Variable([3.0], name="a")
b = tf.Variable([4.0], name="b")
momentum = tf.compat.v1.train.MomentumOptimizer(0.5, momentum=0.5)
opt = lockstep.MultitaskOptimizerWrapper(momentum)


def step(present):
    def loss():  # eager mode wants a callable
        return tf.reduce_sum(a**2) + present * tf.reduce_sum(b**2)

    pairs = opt.compute_gradients(loss, [a, b])
    clipped, norm = lockstep.clip_gradients_by_global_norm(pairs, 5.0)
    opt.apply_gradients(clipped)
    slot = opt.get_slot(b, "momentum").numpy()
    print(f"norm {norm.numpy()}, b {b.numpy().item()}, momentum of b {slot.item()}")


step(present=1.0)
step(present=0.0)  # no example of b's task in this batch
