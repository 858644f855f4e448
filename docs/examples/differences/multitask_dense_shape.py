import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

v1 = tf.compat.v1
v1.disable_control_flow_v2()
for name, lockstep in ("default", default), ("strict", strict):
    with tf.Graph().as_default(), v1.Session() as session:
        ones = v1.ones_initializer()
        w = v1.get_variable("w", [3, 1], initializer=ones, use_resource=False)
        rows = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([1]))
        opt = lockstep.MultitaskOptimizerWrapper(v1.train.MomentumOptimizer(0.5, 0.9))
        try:
            train = opt.apply_gradients([(rows, w)])
            session.run([v1.global_variables_initializer()])
            session.run(train)
            print(f"{name}: {session.run(w).ravel().tolist()}")
        except ValueError as error:
            print(f"{name}: {error}")
