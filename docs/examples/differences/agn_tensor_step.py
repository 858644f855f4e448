import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

for name, lockstep in ("default", default), ("strict", strict):
    w = tf.Variable([4.0], name="w")
    getter = lockstep.AGNCustomGetter("/cpu:0")
    getter([w])
    sgd = tf.compat.v1.train.GradientDescentOptimizer(0.5)
    opt = lockstep.AGNOptimizer(sgd, 1, getter, communication_period=1)
    for step in tf.Variable(0), tf.constant(0):
        try:
            opt.apply_gradients([(tf.constant([1.0]), w)], global_step=step)
            print(f"{name}: {step.numpy()}")
        except TypeError as error:
            print(f"{name}: {error}")
