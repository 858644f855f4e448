import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

for name, lockstep in ("default", default), ("strict", strict):
    w = tf.Variable([1.0], dtype=tf.float16, name="w")
    sgd = lockstep.GradientDescentOptimizer(0.5)
    scaler = lockstep.AutomaticLossScaler("Backoff")
    opt = lockstep.MixedPrecisionOptimizerWrapper(sgd, scaler)
    try:
        opt.minimize(lambda w=w: tf.reduce_sum(w), var_list=[w])  # float16, as w is
        print(f"{name}: {w.numpy().tolist()}")
    except TypeError as error:
        print(f"{name}: {error}")
