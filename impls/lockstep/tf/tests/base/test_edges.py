"""Edges of the rules: after an overflow, at and below a limit, complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep import tf as ls
from lockstep.tf import strict


def test_novograd_begins_anew_after_a_norm_that_overflowed() -> None:
    w = tf.Variable([1.0])
    opt = ls.NovoGrad(0.5)
    opt.apply_gradients([(tf.constant([1e30]), w)])
    assert np.isinf(opt.get_slot(w, "second_moment").numpy())
    opt.apply_gradients([(tf.constant([2.0]), w)])
    assert opt.get_slot(w, "second_moment").numpy() == 4.0


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_below_the_limit_no_gradient_is_multiplied(traced: bool) -> None:
    # One of the limits c for which c (1/c) is not 1 in float32.
    limits = np.arange(2, 200, dtype=np.float32)
    limit = float(limits[limits * (np.float32(1) / limits) != 1][0])
    w = tf.Variable([0.0, 0.0])
    base = ls.GradientDescentOptimizer(1.0)
    opt = ls.MixedPrecisionLossScaleOptimizer(base, 1.0, clip_norm=limit)

    def step() -> None:
        opt.apply_gradients([(tf.constant([0.3, -0.7]), w)])

    (tf.function(step, autograph=False) if traced else step)()
    assert w.numpy().tolist() == np.float32([-0.3, 0.7]).tolist()
    if not traced:
        assert opt.last_step.clip_factor == 1.0


def test_a_row_exactly_at_the_limit_is_not_clipped() -> None:
    w = tf.Variable([[3.0, 4.0], [0.0, 0.0]])
    base = ls.GradientDescentOptimizer(1.0)
    opt = ls.VariableClippingOptimizer(base, {w.ref(): [1]}, 5.0)
    opt.apply_gradients([(tf.zeros([2, 2]), w)])
    assert w.numpy().tolist() == [[3.0, 4.0], [0.0, 0.0]]
    assert opt.last_step.reason.endswith("0 of 2 rows clipped")


@pytest.mark.parametrize("power", [125, 126])
def test_gradients_are_divided_only_where_a_reciprocal_is_subnormal(power: int) -> None:
    scale = np.float32(1.5 * 2.0**power)
    base = ls.GradientDescentOptimizer(1.0)
    opt = ls.MixedPrecisionLossScaleOptimizer(base, float(scale))
    scaled = np.arange(1, 10, dtype=np.float32) * np.float32(2.0**20)
    (gradient,) = opt.unscale_gradients([tf.constant(scaled)])
    product, quotient = scaled * (np.float32(1) / scale), scaled / scale
    assert product.tolist() != quotient.tolist()
    expected = product if power < 126 else quotient
    assert gradient.numpy().tolist() == expected.tolist()


@pytest.mark.parametrize("names", [ls, strict], ids=["default", "strict"])
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_complex_variables_are_trained_and_skipped(names: Any, traced: bool) -> None:
    first, second = (tf.Variable([1 + 1j], dtype=tf.complex64) for _ in range(2))
    opt = names.MultitaskOptimizerWrapper(ls.GradientDescentOptimizer(1.0))

    def step(*gradients: tf.Tensor) -> None:
        opt.apply_gradients(zip(gradients, [first, second], strict=True))

    step = tf.function(step, autograph=False) if traced else step
    step(tf.constant([1j], tf.complex64), tf.constant([0j], tf.complex64))
    assert first.numpy().tolist() == [1]
    assert second.numpy().tolist() == [1 + 1j]


SGD = ls.GradientDescentOptimizer(1.0)
REFUSING: dict[str, Callable[[Any, Any], Any]] = {
    "masters": lambda pairs, w: ls.MixedPrecisionOptimizerWrapper(
        SGD, "dynamic"
    ).apply_gradients(pairs),
    "masters, gradients": lambda pairs, w: ls.MixedPrecisionOptimizerWrapper(
        SGD, 8.0
    ).compute_gradients(lambda: tf.abs(w), [w]),
    "a loss scale, gradients": lambda pairs, w: ls.MixedPrecisionLossScaleOptimizer(
        SGD, 8.0
    ).compute_gradients(lambda: tf.abs(w), [w]),
    "row clipping": lambda pairs, w: ls.VariableClippingOptimizer(
        SGD, {w.ref(): [0]}, 1.0
    ).apply_gradients(pairs),
    "LARC": lambda pairs, w: ls.post_process_gradients(
        pairs, [], 0.1, None, {"larc_eta": 0.1}
    ),
}


@pytest.mark.parametrize("tool", REFUSING)
def test_complex_gradients_are_refused_and_change_nothing(tool: str) -> None:
    w = tf.Variable([1 + 1j], dtype=tf.complex64)
    with pytest.raises(errors.DtypeError, match="got complex64"):
        REFUSING[tool]([(tf.constant([3 + 4j], tf.complex64), w)], w)
    assert w.numpy().tolist() == [1 + 1j]
