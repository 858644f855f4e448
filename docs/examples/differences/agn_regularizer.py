import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

v1 = tf.compat.v1

for name, lockstep in ("default", default), ("strict", strict):
    with tf.Graph().as_default() as graph:
        getter = lockstep.AGNCustomGetter("/cpu:0")
        with v1.variable_scope("net", custom_getter=getter):
            v1.get_variable("w", [2], regularizer=tf.nn.l2_loss)
        losses = graph.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
        print(f"{name}: {len(losses)} penalties")
