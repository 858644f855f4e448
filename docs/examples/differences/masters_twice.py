import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

v1 = tf.compat.v1
for name, lockstep in ("default", default), ("strict", strict):
    with tf.Graph().as_default():
        w = v1.get_variable("w", [2], tf.float16, v1.ones_initializer())
        opt = lockstep.MixedPrecisionOptimizerWrapper(
            v1.train.GradientDescentOptimizer(0.5)
        )
        loss = tf.cast(tf.reduce_sum(w), tf.float32)
        for _ in range(2):
            ((_, master),) = opt.compute_gradients(loss)
            print(f"{name}: {master.name}")
