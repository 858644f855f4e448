import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

v1 = tf.compat.v1

for name, lockstep in ("default", default), ("strict", strict):
    device = "/job:worker/task:1"
    place = v1.train.replica_device_setter(ps_tasks=1, worker_device=device)
    with tf.Graph().as_default(), v1.device(place):
        getter = lockstep.AGNCustomGetter(device)
        with v1.variable_scope("net", custom_getter=getter, use_resource=True):
            v1.get_variable("w", [2])
        sgd = v1.train.GradientDescentOptimizer(0.5)
        opt = lockstep.AGNOptimizer(sgd, 2, getter)
    print(f"{name}: {opt.local_step.device}")
