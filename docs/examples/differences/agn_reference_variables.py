import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

v1 = tf.compat.v1

for name, lockstep in ("default", default), ("strict", strict):
    device = "/job:worker/task:0"
    place = v1.train.replica_device_setter(ps_tasks=1, worker_device=device)
    with tf.Graph().as_default(), v1.device(place):
        getter = lockstep.AGNCustomGetter(device)
        with v1.variable_scope("net", custom_getter=getter, use_resource=False):
            try:
                w = v1.get_variable("w", [2])
                print(f"{name}: made, {getter._global_map[w].device}")
            except ValueError as error:
                print(f"{name}: {error}")
