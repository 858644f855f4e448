import tempfile

import tensorflow as tf

from lockstep.tf import (
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    pipeline_of,
)

speech, text = (tf.Variable([1.0, 2.0], name=name) for name in ("speech", "text"))


def make_optimizer():
    adam = tf.compat.v1.train.AdamOptimizer(1e-3)
    tasks = MultitaskOptimizerWrapper(adam)
    return MixedPrecisionLossScaleOptimizer(tasks, "dynamic", clip_norm=1.0)


def train(a, b):
    with tf.GradientTape() as tape:
        loss = a * tf.reduce_sum(speech) + b * tf.reduce_sum(text)
        loss = optimizer.scale_loss(loss)
    gradients = tape.gradient(loss, [speech, text])
    gradients = optimizer.unscale_gradients(gradients)
    optimizer.apply_gradients(zip(gradients, [speech, text], strict=True))


optimizer = make_optimizer()
print(pipeline_of(optimizer))
for weights in ((1.0, 1.0), (0.0, 1.0), (1.0, float("inf"))):
    train(*weights)
    report, scale = optimizer.last_step, float(optimizer.loss_scale)
    print(report.applied, report.skipped, report.nonfinite, scale)

everything = {"speech": speech, "text": text}
with tempfile.TemporaryDirectory() as folder:
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, **everything)
    path = checkpoint.write(f"{folder}/run")
    # As after a restart: the same wrappers in the same order.
    optimizer = make_optimizer()
    tf.train.Checkpoint(optimizer=optimizer, **everything).read(path)
    train(1.0, 1.0)
print(int(optimizer.skipped_steps), float(optimizer.loss_scale))
