import tempfile

import tensorflow as tf

from lockstep import tf as lockstep

speech, text = (tf.Variable([1.0, 2.0], name=name) for name in ("speech", "text"))


def make_optimizer():
    adam = tf.compat.v1.train.AdamOptimizer(1e-3)
    adam = lockstep.MultitaskOptimizerWrapper(adam)
    return lockstep.MixedPrecisionLossScaleOptimizer(adam, "dynamic", clip_norm=1.0)


def train(a, b):
    with tf.GradientTape() as tape:
        loss = a * tf.reduce_sum(speech) + b * tf.reduce_sum(text)
        loss = optimizer.scale_loss(loss)
    gradients = tape.gradient(loss, [speech, text])
    optimizer.apply_gradients(zip(gradients, [speech, text], strict=True))


optimizer = make_optimizer()
print(lockstep.pipeline_of(optimizer))
for weights in ((1.0, 1.0), (0.0, 1.0), (1.0, float("inf"))):
    train(*weights)
    report = optimizer.last_step
    print(report.applied, report.skipped, report.nonfinite, float(optimizer.loss_scale))

everything = {"speech": speech, "text": text}
with tempfile.TemporaryDirectory() as folder:
    path = tf.train.Checkpoint(optimizer=optimizer, **everything).write(f"{folder}/run")
    # As after a restart: the same wrappers in the same order.
    optimizer = make_optimizer()
    tf.train.Checkpoint(optimizer=optimizer, **everything).read(path)
    train(1.0, 1.0)
print(int(optimizer.skipped_steps), float(optimizer.loss_scale))
