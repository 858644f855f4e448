"""Loss scales among two replicas; once one replica alone overflows."""

import json

# --- imports ---
import tensorflow as tf

experimental = tf.train.experimental

# --- end of imports ---


def scales():
    yield 8.0
    yield experimental.DynamicLossScale(8.0, 2, 2.0)


for given in range(2):
    tf.reset_default_graph()
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        weight = tf.get_variable("weight", [2], initializer=tf.ones_initializer())
        factor = tf.placeholder(tf.float32, [2])
        base = tf.train.MomentumOptimizer(0.01, 0.9)
        scale = list(scales())[given]
        optimizer = experimental.MixedPrecisionLossScaleOptimizer(base, scale)

        def step():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            loss = tf.gather(factor, replica) * tf.reduce_sum(tf.square(weight))
            pairs = optimizer.compute_gradients(loss, [weight])
            return optimizer.apply_gradients(pairs)

        run = getattr(strategy, "experimental_run_v2", None) or strategy.run
        train = strategy.group(run(step))
        names = sorted(v.op.name for v in tf.global_variables())
        print(json.dumps({"names": names}))
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            session.run(tf.global_variables_initializer())
            for k in range(6):
                worse = 1e38 if k == 3 and given == 1 else 2.0
                session.run(train, {factor: [1.0, worse]})
                found = session.run({v.op.name: v for v in tf.global_variables()})
                row = {name: value.tolist() for name, value in found.items()}
                print(json.dumps(row, sort_keys=True))
