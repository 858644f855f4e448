import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

for name, lockstep in ("default", default), ("strict", strict):
    w = tf.Variable([1.0], dtype=tf.float16)
    momentum = lockstep.MomentumOptimizer(0.5, 0.9)
    opt = lockstep.MixedPrecisionOptimizerWrapper(momentum, 8.0)
    opt.minimize(lambda w=w: tf.reduce_sum(tf.cast(w, tf.float32)), var_list=[w])
    slot = opt.get_slot(w, "momentum")
    slot = slot if slot is None else slot.numpy()
    print(f"{name}: {slot} {opt.get_slot_names()}")
