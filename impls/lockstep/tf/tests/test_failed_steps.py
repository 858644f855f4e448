"""A call that fails leaves the step that ``optimize_loss`` returned as it was."""

from __future__ import annotations

import pytest
import tensorflow as tf

from lockstep import tf as ls


class Unreliable:
    """Two ranks alike, whose connection fails as long as ``fails``."""

    size, fails = 2, True

    def any(self, flags):
        return flags

    def all_reduce(self, tensors):
        if self.fails:
            raise ConnectionError
        return tensors


def step_of(**options):
    weight = tf.Variable([0.0, 0.0])
    return weight, ls.optimize_loss(
        lambda: tf.reduce_sum(weight),
        "SGD",
        {},
        lambda step: 1.0,
        [weight],
        iter_size=2,
        **options,
    )


def no_answer():
    raise ConnectionError


def test_a_reduction_that_fails_may_be_tried_again() -> None:
    engine = Unreliable()
    weight, step = step_of(on_horovod=True, reduction=engine, clip_gradients=8.0)
    step()
    with pytest.raises(ConnectionError):
        step()
    assert int(step.micro_step) == 1 and int(step.global_step) == 0
    assert step.accumulators[0].numpy().tolist() == [0.5, 0.5]
    assert step.last_step.reason == "accumulated micro-batch 1 of 2"
    engine.fails = False
    step()
    assert weight.numpy().tolist() == [-1.0, -1.0]


def test_a_flag_that_fails_adds_nothing() -> None:
    weight, step = step_of()
    with pytest.raises(ConnectionError):
        step(skip_update=no_answer)
    assert int(step.micro_step) == 0
    step(), step()
    assert weight.numpy().tolist() == [-1.0, -1.0]
