"""Loss scales, fixed and dynamic, with steps that overflow and are left out."""

import json

import numpy as np

# --- imports ---
import tensorflow as tf

experimental = tf.train.experimental

# --- end of imports ---


def scales():
    yield experimental.FixedLossScale(1024)
    yield experimental.DynamicLossScale(64.0, increment_period=3, multiplier=2.0)
    yield "dynamic"
    yield 8.0


for use_resource in (False, True):
    for given in range(4):
        tf.reset_default_graph()
        scale = list(scales())[given]
        start = tf.random_normal_initializer(seed=41)
        kernel = tf.get_variable(
            "kernel", [3, 2], initializer=start, use_resource=use_resource
        )
        x = tf.placeholder(tf.float32, [None, 3])
        loss = tf.reduce_mean(tf.square(tf.matmul(x, kernel)))
        base = tf.train.MomentumOptimizer(0.1, 0.9)
        optimizer = experimental.MixedPrecisionLossScaleOptimizer(base, scale)
        step = tf.Variable(0, trainable=False, dtype=tf.int64, name="global_step")
        pairs = optimizer.compute_gradients(loss)
        train = optimizer.apply_gradients(pairs, global_step=step)
        row = {"resource": use_resource, "optimizer": optimizer.get_name()}
        if isinstance(scale, experimental.LossScale):
            again = type(scale).from_config(scale.get_config())
            row.update(config=again.get_config(), repr=repr(scale))
        row["names"] = sorted(v.op.name for v in tf.global_variables())
        row["slot"] = optimizer.get_slot(kernel, "momentum") is None
        row["variables"] = [v.op.name for v in optimizer.variables()]
        data = np.random.RandomState(42)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for k in range(10):
                features = data.randn(4, 3)
                if k in (3, 4, 7) and given in (1, 2):
                    features[0, 0] = np.inf if k == 3 else 1e30
                gradients = [g for g, _ in pairs]
                found, _ = session.run([gradients, train], {x: features})
                row.setdefault("gradients", []).append(found[0].tolist())
                row.setdefault("steps", []).append(int(session.run(step)))
                row.setdefault("kernels", []).append(session.run(kernel).tolist())
                if hasattr(scale, "increment_period"):
                    row.setdefault("scales", []).append(float(session.run(scale())))
        print(json.dumps(row, sort_keys=True))
