import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

for name, lockstep in ("default", default), ("strict", strict):
    w = tf.Variable([4.0], name="w")
    getter = lockstep.AGNCustomGetter("/cpu:0")
    getter([w])
    momentum = lockstep.MomentumOptimizer(0.5, 0.9)
    opt = lockstep.AGNOptimizer(momentum, 1, getter)
    opt.apply_gradients([(tf.ones(1), w)])
    slot = opt.get_slot(w, "momentum")
    slot = slot if slot is None else slot.numpy()
    print(f"{name}: {slot} {opt.get_slot_names()}")
