import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

v1 = tf.compat.v1
for name, lockstep in ("default", default), ("strict", strict):
    with tf.Graph().as_default() as graph:
        w = v1.get_variable("w", [2], tf.float16, v1.ones_initializer())
        l2 = lockstep.mp_regularizer_wrapper(lambda weight: tf.nn.l2_loss(weight))
        l2(w)
        opt = lockstep.MixedPrecisionOptimizerWrapper(
            v1.train.GradientDescentOptimizer(0.5)
        )
        opt.compute_gradients(tf.cast(tf.reduce_sum(w), tf.float32))
        losses = v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
        print(f"{name}: {len(losses)} losses collected")
