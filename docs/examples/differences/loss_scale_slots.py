import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

for name, lockstep in ("default", default), ("strict", strict):
    w = tf.Variable([1.0])
    momentum = lockstep.MomentumOptimizer(1.0, 0.9)
    opt = lockstep.MixedPrecisionLossScaleOptimizer(momentum, 8)
    opt.minimize(lambda w=w: 1.0 * w, var_list=[w])
    print(f"{name}: {opt.get_slot_names()}")
