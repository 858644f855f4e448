"""State survives: a run that stops and goes on equals one that never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from lockstep.tf import AdamOptimizer, MultitaskOptimizerWrapper

v1 = tf.compat.v1

TRAIN = """
from lockstep.tf import AdamOptimizer, MultitaskOptimizerWrapper
way, path, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
stop = 5
random = np.random.default_rng(3)
gradients = random.normal(size=(8, 2, 5)).astype(np.float32)
gradients[[1, 4], 0] = 0
gradients[[2, 4, 5], 1] = 0
a, b = tf.Variable(tf.ones([5]), name="a"), tf.Variable(tf.zeros([5]), name="b")
counter = tf.Variable(0, dtype=tf.int64, name="counter")
wrapper = MultitaskOptimizerWrapper(MultitaskOptimizerWrapper(AdamOptimizer(0.1)))
checkpoint = tf.train.Checkpoint(a=a, b=b, counter=counter, optimizer=wrapper)

def step(ga, gb):
    wrapper.apply_gradients([(ga, a), (gb, b)], global_step=counter)

step = tf.function(step, autograph=False) if way == "function" else step
if way == "saver":
    wrapper.create_slots([a, b])
    saver = v1.train.Saver([a, b, counter, *wrapper.variables()])
if first and way == "saver":
    saver.restore(None, path)
elif first:
    checkpoint.read(path).assert_existing_objects_matched()
for k in range(first, 8):
    if k == stop and not first:
        saver.save(None, path) if way == "saver" else checkpoint.write(path)
    step(tf.constant(gradients[k, 0]), tf.constant(gradients[k, 1]))
slots = [wrapper.get_slot(v, name) for v in (a, b) for name in ("m", "v")]
state = [a, b, counter, *slots, *wrapper.variables()]
print(" ".join(np.asarray(part).tobytes().hex() for part in state))
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["eager", "function", "saver"])
def test_a_fresh_process_goes_on_to_the_bit(
    shared: Callable[..., str], tmp_path: Path, way: str
) -> None:
    whole = shared("eager, first", TRAIN, way, tmp_path / "stopped", 0)
    assert shared("eager, second", TRAIN, way, tmp_path / "stopped", 5) == whole


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
