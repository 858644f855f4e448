"""State survives: a run that stops and goes on equals one that never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from lockstep.tf import AdamOptimizer, MultitaskOptimizerWrapper

v1 = tf.compat.v1


def test_a_checkpoint_holds_slots_and_powers_once(tmp_path: Path) -> None:
    variable = tf.Variable([1.0, 2.0])
    wrapper = MultitaskOptimizerWrapper(AdamOptimizer())
    wrapper.apply_gradients([(tf.ones([2]), variable)])
    path = tf.train.Checkpoint(w=variable, optimizer=wrapper).write(str(tmp_path / "c"))
    slots = [name for name, _ in tf.train.list_variables(path) if "OPTIMIZER" in name]
    powers = [name for name, _ in tf.train.list_variables(path) if "power" in name]
    assert len(slots) == len(powers) == 2


def test_a_v1_saver_keeps_the_names_of_the_bare_optimizer(tmp_path: Path) -> None:
    def names(wrap: Callable[[AdamOptimizer], v1.train.Optimizer]) -> list[str]:
        with tf.Graph().as_default():
            variable = v1.Variable([1.0, 2.0], name="w")
            wrap(AdamOptimizer()).apply_gradients([(tf.ones([2]), variable)])
            return sorted(v.op.name for v in v1.global_variables())

    bare = ["beta1_power", "beta2_power", "w", "w/Adam", "w/Adam_1"]
    assert names(lambda opt: opt) == bare
    assert names(MultitaskOptimizerWrapper) == bare
    assert names(lambda opt: MultitaskOptimizerWrapper(opt, strict=True)) == bare


def test_a_monitored_session_starts_again_where_it_stopped(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watch(v1.train.SessionRunHook):
        def before_run(self, context: object) -> v1.train.SessionRunArgs:
            return v1.train.SessionRunArgs(v1.train.get_global_step())

        def after_run(self, context: object, values: v1.train.SessionRunValues) -> None:
            seen.append(int(values.results))

    def train(steps: int) -> np.ndarray:
        with tf.Graph().as_default():
            counter = v1.train.create_global_step()
            variable = v1.get_variable("w", initializer=tf.constant([1.0, 2.0]))
            wrapper = MultitaskOptimizerWrapper(AdamOptimizer(0.1))
            idle = tf.cast(tf.equal(counter % 2, 0), tf.float32)
            loss = tf.reduce_sum(variable**2) * idle
            train_op = wrapper.minimize(loss, global_step=counter)
            hooks = [Watch(), v1.train.StopAtStepHook(num_steps=steps)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks, log_step_count_steps=None
            ) as session:
                while not session.should_stop():
                    session.run(train_op)
                    # The last run may have ended the session's life.
            reader = tf.train.load_checkpoint(str(tmp_path))
            return np.concatenate(
                [reader.get_tensor(name) for name in ("w", "w/Adam", "w/Adam_1")]
            )

    train(3)
    resumed = train(3)
    assert len(seen) == 6
    for path in tmp_path.iterdir():
        path.unlink()
    assert train(6).tolist() == resumed.tolist()
