"""A monitored session with hooks and checkpoints: whole, or killed and started again.

`whole` trains without a break; `first` is killed between two checkpoints, so that steps
are lost; `second` restores the last one and goes on.
"""

import json
import logging
import os
import sys

import numpy as np

# --- imports ---
import tensorflow as tf
from tensorflow.contrib.opt import MultitaskOptimizerWrapper

# --- end of imports ---

LAST, KILLED_AT = 30, 17
phase = sys.argv[1]
folder = "whole" if phase == "whole" else "parts"


class Lines(logging.Handler):
    """Keeps what hooks log; how long a step took is not for comparison."""

    def __init__(self):
        logging.Handler.__init__(self)
        self.lines = []

    def emit(self, record):
        text = record.getMessage()
        if text.startswith("seen"):
            self.lines.append(text.split(" (")[0])


class Killed(tf.train.SessionRunHook):
    """Ends the process at once, as a machine that goes down would."""

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, run_context, run_values):
        if run_values.results >= KILLED_AT:
            os._exit(9)


def batch(k):
    """Return the features of a step and whether its labels are there."""
    return np.random.RandomState(100 + k).randn(4, 3), float(k % 3 != 2)


lines = Lines()
tf.get_logger().addHandler(lines)
tf.logging.set_verbosity(tf.logging.INFO)

x = tf.placeholder(tf.float32, [4, 3], "x")
there = tf.placeholder(tf.float32, [], "there")
start = tf.random_normal_initializer(seed=31)
kernel = tf.get_variable("kernel", [3, 2], initializer=start)
bias = tf.get_variable("bias", [2], initializer=tf.zeros_initializer())
loss = there * tf.reduce_sum(tf.square(tf.matmul(x, kernel) + bias - 1.0))
optimizer = MultitaskOptimizerWrapper(tf.train.AdamOptimizer(0.05))
step = tf.train.get_or_create_global_step()
train = optimizer.minimize(loss, global_step=step)
m = optimizer.get_slot(kernel, "m")

seen = {"loss": loss}
hooks = [
    tf.train.LoggingTensorHook(
        seen, every_n_iter=10, formatter=lambda found: "seen %r" % found["loss"].item()
    ),
    tf.train.StopAtStepHook(last_step=LAST),
    tf.train.CheckpointSaverHook(folder, save_steps=6),
]
if phase == "first":
    hooks.append(Killed())
with tf.train.MonitoredTrainingSession(
    checkpoint_dir=folder,
    hooks=hooks,
    save_checkpoint_secs=None,
    save_summaries_steps=None,
    log_step_count_steps=None,
) as session:
    while not session.should_stop():
        # What is asked before a step is where a restored run goes on.
        k = session.run_step_fn(lambda step_context: step_context.session.run(step))
        features, labelled = batch(int(k))
        feed = {x: features, there: labelled}
        value, after, _ = session.run([loss, step, train], feed)
        found = session.run_step_fn(
            lambda step_context: step_context.session.run([kernel, bias, m])
        )
        row = {"phase": phase, "k": int(k), "loss": float(value)}
        row["kernel"], row["bias"], row["m"] = (part.tolist() for part in found)
        print(json.dumps(row), flush=True)

path = tf.train.latest_checkpoint(folder)
shapes = tf.train.NewCheckpointReader(path).get_variable_to_shape_map()
print(json.dumps({"phase": phase, "seen": lines.lines}))
print(json.dumps({"phase": phase, "checkpoint": shapes}, sort_keys=True))
