"""Bad input: the class, the sentence, and nothing changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep import tf as tf_backend
from lockstep.tf import (
    AdamWOptimizer,
    FtrlOptimizer,
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    clip_gradients_by_global_norm,
    strict,
)

ONES = tf.ones([2])

BAD_PAIRS: dict[str, tuple[Callable[[tf.Variable], Any], type, type, str]] = {
    "no list": (
        lambda w: 3,
        errors.MalformedPairsError,
        TypeError,
        "got 3; pass a list",
    ),
    "an empty list": (
        lambda w: [],
        errors.NoGradientsError,
        ValueError,
        "got an empty list",
    ),
    "all absent": (
        lambda w: [(None, w)],
        errors.NoGradientsError,
        ValueError,
        "None for every one of w",
    ),
    "no pair": (
        lambda w: [(ONES, w, 1)],
        errors.MalformedPairsError,
        TypeError,
        "got tuple at position 0",
    ),
    "swapped": (
        lambda w: [(w, ONES)],
        errors.MalformedPairsError,
        TypeError,
        "put the gradient first",
    ),
    "no gradient": (
        lambda w: [(object(), w)],
        errors.MalformedPairsError,
        TypeError,
        "expected a tensor, tf.IndexedSlices or None for 'w', got object",
    ),
    "another shape": (
        lambda w: [(tf.ones([3]), w)],
        errors.ShapeError,
        ValueError,
        "a gradient of shape [2] for 'w', got [3]",
    ),
    "rows of another shape": (
        lambda w: [(tf.IndexedSlices(tf.ones([1, 3]), [0]), w)],
        errors.ShapeError,
        ValueError,
        "a gradient of shape [] for 'w', got [3]",
    ),
    "another dtype": (
        lambda w: [(tf.ones([2], tf.float16), w)],
        errors.DtypeError,
        TypeError,
        "a gradient of dtype float32 for 'w', got float16",
    ),
}


@pytest.mark.parametrize("strict", [False, True], ids=["default", "strict"])
@pytest.mark.parametrize("case", BAD_PAIRS)
def test_bad_pairs_are_refused_and_nothing_changes(case: str, strict: bool) -> None:
    make, error, builtin, words = BAD_PAIRS[case]
    w, counter = tf.Variable([1.0, 2.0], name="w"), tf.Variable(0)
    wrapper = MultitaskOptimizerWrapper(MomentumOptimizer(0.1, 0.9), strict)
    wrapper.apply_gradients([(ONES, w)])
    before, slot = w.numpy(), wrapper.get_slot(w, "momentum").numpy()
    report = wrapper.last_step
    with pytest.raises(error, match=re.escape(words)) as caught:
        wrapper.apply_gradients(make(w), global_step=counter)
    assert isinstance(caught.value, builtin)
    assert w.numpy().tolist() == before.tolist()
    assert wrapper.get_slot(w, "momentum").numpy().tolist() == slot.tolist()
    assert counter.numpy() == 0
    assert wrapper.last_step is report


def keras_adam() -> Any:
    return pytest.importorskip("keras", reason="needs Keras").optimizers.Adam()


BAD_OPTIMIZERS: dict[str, tuple[Callable[[], Any], bool, str]] = {
    "a number": (lambda: 3, False, "got int; pass the optimizer"),
    "None": (lambda: None, False, "got NoneType"),
    "a class": (lambda: MomentumOptimizer, False, "pass an instance"),
    "Keras": (keras_adam, False, "such as lockstep.tf.AdamOptimizer"),
    "a wrapper, strict": (
        lambda: MultitaskOptimizerWrapper(MomentumOptimizer(0.1, 0.9)),
        True,
        "to nest them",
    ),
}


@pytest.mark.parametrize("case", BAD_OPTIMIZERS)
def test_what_is_no_optimizer_is_refused(case: str) -> None:
    make, strict, words = BAD_OPTIMIZERS[case]
    with pytest.raises(errors.NotAnOptimizerError, match=words) as caught:
        MultitaskOptimizerWrapper(make(), strict=strict)
    assert isinstance(caught.value, TypeError)


def test_an_eager_loss_must_be_callable() -> None:
    wrapper = MultitaskOptimizerWrapper(MomentumOptimizer(0.1, 0.9))
    with pytest.raises(
        errors.LossNotCallableError, match="expected a callable"
    ) as caught:
        wrapper.compute_gradients(tf.constant(1.0))
    assert isinstance(caught.value, RuntimeError)


def test_gradients_are_not_applied_across_replicas() -> None:
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        w = tf.Variable([1.0, 2.0])
        wrapper = MultitaskOptimizerWrapper(MomentumOptimizer(0.1, 0.9))
        with pytest.raises(
            errors.CrossReplicaError, match="_distributed_apply"
        ) as caught:
            wrapper.apply_gradients([(ONES, w)])
    assert isinstance(caught.value, RuntimeError)
    assert w.numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), float("inf"), "1"])
def test_a_norm_that_clips_nothing_sensible_is_refused(clip_norm: Any) -> None:
    with pytest.raises(errors.OutOfRangeError, match="expected a finite number > 0"):
        clip_gradients_by_global_norm([(ONES, None)], clip_norm)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AdamWOptimizer(-0.1), "weight_decay: expected a finite number >= 0"),
        (lambda: AdamWOptimizer("0.1"), "weight_decay: expected a finite number >= 0"),
        (lambda: AdamWOptimizer(0.1, beta1=1.0), "beta1: expected a number in"),
        (lambda: FtrlOptimizer(-1.0), "learning_rate: expected a finite number >= 0"),
        (lambda: FtrlOptimizer(np.nan), "learning_rate: expected a finite number >= 0"),
    ],
)
def test_numbers_out_of_range_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(errors.OutOfRangeError, match=re.escape(words)):
        make()


@pytest.mark.parametrize("module", [tf_backend, strict], ids=["default", "strict"])
def test_an_error_inside_a_function_keeps_its_class(module: Any) -> None:
    calls = {
        errors.OutOfRangeError: lambda: module.FixedLossScale(0.5),
        errors.UnknownNameError: lambda: module.AutomaticLossScaler("x"),
        errors.MalformedPairsError: lambda: module.clip_gradients_by_norm(3, 1.0),
    }
    for error, call in calls.items():
        with pytest.raises(error):
            tf.function(call)()
