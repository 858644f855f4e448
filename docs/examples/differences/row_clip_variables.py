import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

for name, lockstep in ("default", default), ("strict", strict):
    w = tf.Variable([[4.0, 0.0]])
    momentum = lockstep.MomentumOptimizer(1.0, momentum=0.5)
    opt = lockstep.VariableClippingOptimizer(momentum, {w.ref(): [1]}, max_norm=1.0)
    opt.apply_gradients([(tf.zeros((1, 2)), w)])
    print(f"{name}: {len(opt.variables())} state variables")
