import tensorflow as tf

from lockstep.tf import MomentumOptimizer, lr_policies

global_step = tf.Variable(0, dtype=tf.int64)
weight = tf.Variable([1.0, 2.0])


def rate():
    return lr_policies.poly_decay(global_step, 0.5, decay_steps=4, min_lr=0.125)


optimizer = MomentumOptimizer(learning_rate=rate, momentum=0.9)
for _ in range(4):
    print(rate().numpy())
    pairs = [(tf.constant([0.1, 0.2]), weight)]
    optimizer.apply_gradients(pairs, global_step=global_step)

print(lr_policies.poly_decay(2, 0.5, decay_steps=4, min_lr=0.125).numpy())
