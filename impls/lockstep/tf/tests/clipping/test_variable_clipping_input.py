"""Row clipping and bad input: the class, the sentence, and nothing changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.errors import CrossReplicaError
from lockstep.interface import NO_EAGER_STEP
from lockstep.tf import MomentumOptimizer, VariableClippingOptimizer

W = tf.Variable([[3.0, 4.0], [0.3, 0.4]], name="w")
ONES = tf.ones([2, 2])


def keras_adam() -> Any:
    return pytest.importorskip("keras", reason="needs Keras").optimizers.Adam()


class NoOptimizer:
    apply_gradients = None


BAD: dict[str, tuple[dict[str, Any], type, type, str]] = {
    "a number": ({"opt": 3}, errors.NotAnOptimizerError, TypeError, "got int"),
    "None": ({"opt": None}, errors.NotAnOptimizerError, TypeError, "got NoneType"),
    "a class": (
        {"opt": MomentumOptimizer},
        errors.NotAnOptimizerError,
        TypeError,
        "pass an instance",
    ),
    "an optimizer with one method": (
        {"opt": NoOptimizer()},
        errors.NotAnOptimizerError,
        TypeError,
        "got NoOptimizer",
    ),
    "Keras": (
        {"opt": keras_adam},
        errors.NotAnOptimizerError,
        TypeError,
        "VariableClippingOptimizer: expected a tf.compat.v1.train.Optimizer, got the "
        "Keras optimizer Adam; pass its v1 counterpart",
    ),
    "an empty name": ({"name": ""}, errors.OutOfRangeError, ValueError, "a name"),
    "a list": (
        {"vars_to_clip_dims": [W]},
        errors.AxesError,
        TypeError,
        "expected a dict {variable: axes}, got list",
    ),
    "an integer": (
        {"vars_to_clip_dims": {W.ref(): 1}},
        errors.AxesError,
        TypeError,
        "a list of axes for 'w', got 1; give [1]",
    ),
    "no axes": (
        {"vars_to_clip_dims": {W.ref(): None}},
        errors.AxesError,
        TypeError,
        "a list of axes for 'w', got None",
    ),
    "a name as key": (
        {"vars_to_clip_dims": {"w": [1]}},
        errors.AxesError,
        TypeError,
        "variables, or their ref(), as keys, got str",
    ),
}
BAD_BY_DEFAULT: dict[str, tuple[dict[str, Any], type, type, str]] = {
    f"max_norm {bad!r}": (
        {"max_norm": bad},
        errors.OutOfRangeError,
        ValueError,
        f"max_norm: expected a finite number > 0, got {bad!r}",
    )
    for bad in (0, -1.0, float("nan"), float("inf"), "1", None)
} | {
    "a tensor": (
        {"max_norm": tf.constant(-1.0)},
        errors.OutOfRangeError,
        ValueError,
        "a finite number > 0",
    ),
    "an axis too many": (
        {"vars_to_clip_dims": {W.ref(): [2]}},
        errors.OutOfRangeError,
        ValueError,
        "axes of 'w', which has 2, got 2",
    ),
    "an axis twice": (
        {"vars_to_clip_dims": {W.ref(): [1, -1]}},
        errors.OutOfRangeError,
        ValueError,
        "each axis of 'w' once, got [1, -1]",
    ),
}


def arguments(given: dict[str, Any]) -> dict[str, Any]:
    fine = {"opt": MomentumOptimizer(0.1, 0.9), "vars_to_clip_dims": {}, "max_norm": 1}
    chosen = fine | given
    if chosen["opt"] is keras_adam:
        chosen["opt"] = keras_adam()
    return chosen


@pytest.mark.parametrize("strict", [False, True], ids=["default", "strict"])
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_work_is_refused_at_construction(case: str, strict: bool) -> None:
    given, error, builtin, words = BAD[case]
    with pytest.raises(error, match=re.escape(words)) as caught:
        VariableClippingOptimizer(**arguments(given), strict=strict)
    assert isinstance(caught.value, builtin)


@pytest.mark.parametrize("case", BAD_BY_DEFAULT)
def test_more_is_refused_by_default(case: str) -> None:
    given, error, builtin, words = BAD_BY_DEFAULT[case]
    with pytest.raises(error, match=re.escape(words)) as caught:
        VariableClippingOptimizer(**arguments(given))
    assert isinstance(caught.value, builtin)


def test_a_variable_listed_twice_is_refused() -> None:
    with tf.Graph().as_default():
        w = tf.compat.v1.Variable([1.0], name="w", use_resource=True)
        listed = {w: [0], w.ref(): [0]}
        with pytest.raises(errors.UnsupportedError, match="'w' twice"):
            VariableClippingOptimizer(MomentumOptimizer(0.1, 0.9), listed, 1.0)


BAD_PAIRS: dict[str, tuple[Callable[[], Any], type, str]] = {
    "no list": (lambda: 3, errors.MalformedPairsError, "pass a list"),
    "empty": (lambda: [], errors.NoGradientsError, "an empty list"),
    "all absent": (
        lambda: [(None, W)],
        errors.NoGradientsError,
        "None for every one of w",
    ),
    "swapped": (
        lambda: [(W, ONES)],
        errors.MalformedPairsError,
        "the gradient first",
    ),
    "another shape": (
        lambda: [(tf.ones([3, 2]), W)],
        errors.ShapeError,
        "VariableClippingOptimizer: expected a gradient of shape [2, 2] for 'w'",
    ),
}


@pytest.mark.parametrize("strict", [False, True], ids=["default", "strict"])
@pytest.mark.parametrize("case", BAD_PAIRS)
def test_bad_pairs_are_refused_and_nothing_changes(case: str, strict: bool) -> None:
    make, error, words = BAD_PAIRS[case]
    assert_refused(make(), [1], strict, error, words)


def test_strict_refuses_an_axis_too_many_when_it_applies() -> None:
    words = "axes of 'w', which has 2, got -3"
    assert_refused([(ONES, W)], [-3], True, errors.OutOfRangeError, words)


def assert_refused(
    pairs: Any, axes: list[int], strict: bool, error: type, words: str
) -> None:
    counter, before = tf.Variable(0), W.numpy()
    base = MomentumOptimizer(0.1, 0.9)
    wrapper = VariableClippingOptimizer(base, {W.ref(): axes}, 0.1, strict=strict)
    with pytest.raises(error, match=re.escape(words)):
        wrapper.apply_gradients(pairs, global_step=counter)
    assert W.numpy().tobytes() == before.tobytes()
    assert base.variables() == []
    assert counter.numpy() == 0
    assert wrapper.last_step == NO_EAGER_STEP


def test_gradients_are_not_applied_across_replicas() -> None:
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        w = tf.Variable([3.0, 4.0])
        wrapper = VariableClippingOptimizer(
            MomentumOptimizer(0.1, 0.9), {w.ref(): [0]}, 1.0
        )
        with pytest.raises(CrossReplicaError, match="VariableClippingOptimizer"):
            wrapper.apply_gradients([(tf.ones([2]), w)])
    assert w.numpy().tolist() == [3.0, 4.0]


@pytest.mark.parametrize("max_norm", [0.0, -1.0, float("inf"), float("nan")])
def test_strict_takes_any_norm(max_norm: float) -> None:
    w = tf.Variable([[3.0, 4.0], [0.0, 0.0]])
    base = MomentumOptimizer(0.0, 0.9)
    opt = VariableClippingOptimizer(base, {w.ref(): [1]}, max_norm, strict=True)
    opt.apply_gradients([(ONES, w)])
    first = {0.0: [0, 0], -1.0: [-0.6, -0.8]}.get(max_norm, [np.nan] * 2)
    assert w.numpy()[0] == pytest.approx(np.float32(first), nan_ok=True)
    assert np.isnan(w.numpy()[1]).all()


def test_strict_wraps_whatever_has_the_methods() -> None:
    class Duck:
        def __init__(self, inner: Any) -> None:
            self.compute_gradients = inner.compute_gradients
            self.apply_gradients = inner.apply_gradients
            self.get_slot, self.get_slot_names = inner.get_slot, inner.get_slot_names

    w = tf.Variable([[3.0, 4.0]])
    opt = VariableClippingOptimizer(
        Duck(MomentumOptimizer(1.0, 0.9)), {w.ref(): [1]}, 1.0, strict=True
    )
    opt.minimize(lambda: tf.reduce_sum(w), var_list=[w])
    assert np.linalg.norm(w) == pytest.approx(1)
    assert opt.get_slot(w, "momentum").numpy().tolist() == [[1.0, 1.0]]
