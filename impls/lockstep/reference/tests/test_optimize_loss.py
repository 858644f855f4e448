"""Laws of ``optimize_loss`` in NumPy, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from lockstep import reference as ls
from lockstep.interface import Array, Rows
from lockstep.pipeline import base_of
from lockstep.reference import strict

PER_EXAMPLE = np.random.default_rng(7).integers(-4, 5, (32, 2, 3)).astype(np.float32)
"""Whole numbers: their sums and means over powers of two are exact."""

LIMITS = {
    "plain": {},
    "clipped": {"clip_gradients": 0.5},
    "larc, clip": {"larc_params": {"larc_eta": 0.02}},
    "larc, scale": {"larc_params": {"larc_eta": 0.02, "larc_mode": "scale"}},
}
SCALES: dict[str, dict[str, Any]] = {
    "not scaled": {},
    "scaled": {"dtype": "mixed", "loss_scaling": 256.0},
    "backoff": {"dtype": "mixed", "loss_scaling": "Backoff"},
}


def rate(global_step: Any) -> Any:
    return ls.lr_policies.poly_decay(global_step, 0.1, 100)


def weight(dtype: Any = np.float32) -> ls.Variable:
    return ls.Variable("weight", [[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]], dtype)


def trained(batches: Sequence[Array], variable: ls.Variable, **options: Any) -> Any:
    """Train on the mean gradient of each batch; return the step."""
    step = ls.optimize_loss(
        lambda batch: [batch.mean(0).astype(variable.dtype)],
        options.pop("optimizer", "Momentum"),
        options.pop("optimizer_params", {"momentum": 0.5}),
        rate,
        [variable],
        **options,
    )
    for batch in batches:
        step(batch)
    return step


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_four_micro_batches_of_8_are_one_batch_of_32(limit, scale, dtype) -> None:
    parts, whole = weight(dtype), weight(dtype)
    several = trained(np.split(PER_EXAMPLE, 4), parts, iter_size=4, **limit, **scale)
    single = trained([PER_EXAMPLE], whole, **limit, **scale)
    assert several.global_step.value == single.global_step.value == 1
    np.testing.assert_array_equal(parts.value, whole.value)
    slots = [base_of(step.optimizer).slots.values() for step in (several, single)]
    for got, expected in zip(*slots, strict=True):
        np.testing.assert_array_equal(got["momentum"], expected["momentum"])


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_the_loss_scale_changes_no_bit_of_an_update(limit) -> None:
    parts = np.split(PER_EXAMPLE, 4)
    values = []
    for scale in (1.0, 65536.0):
        variable = weight()
        trained(parts, variable, dtype="mixed", loss_scaling=scale, **limit)
        values.append(variable.value)
    np.testing.assert_array_equal(*values)


def test_sparse_gradients_stay_sparse_when_they_are_added_up() -> None:
    table = ls.Variable("table", np.ones((4, 2), np.float32))
    named = iter([np.array([1, 3]), np.array([3, 3])])
    ones = np.ones((2, 2), np.float32)
    step = ls.optimize_loss(
        lambda: [Rows(next(named), ones, (4, 2))],
        "Momentum",
        {"momentum": 0.5},
        lambda step: 0.5,
        [table],
        iter_size=2,
    )
    step()
    assert isinstance(step.accumulators[0], Rows)
    step()
    np.testing.assert_array_equal(table.value[:, 0], [1.0, 0.75, 1.0, 0.25])


def test_the_sum_is_judged_for_zero_not_each_micro_batch() -> None:
    signs = iter([1, -1, 0, 1])
    variable = weight()
    step = ls.optimize_loss(
        lambda: [np.full((2, 3), next(signs), np.float32)],
        lambda learning_rate: ls.MultitaskOptimizerWrapper(
            ls.AdamOptimizer(learning_rate)
        ),
        None,
        rate,
        [variable],
        iter_size=2,
    )
    before = variable.value
    step(), step()
    assert variable.value is before
    assert not step.last_step.applied
    step(), step()
    assert (variable.value != before).all()


def test_the_sum_is_judged_for_infinities_and_the_scaler_moves_once() -> None:
    values = iter([np.inf, 1, 1, 1])
    variable = weight(np.float16)
    step = ls.optimize_loss(
        lambda: [np.full((2, 3), next(values), np.float16)],
        "SGD",
        {},
        rate,
        [variable],
        dtype="mixed",
        loss_scaling="Backoff",
        clip_gradients=1.0,
        iter_size=2,
    )
    before = variable.value
    step(), step()
    assert (variable.value == before).all()
    assert step.last_step.nonfinite == ("weight",)
    assert (step.scaler.state["iteration"], step.global_step.value) == (1, 0)
    step(), step()
    assert (variable.value != before).all()
    assert (step.scaler.state["iteration"], step.global_step.value) == (2, 1)


ONES = np.ones(2, np.float32)


def test_the_rate_waits_with_the_steps() -> None:
    variable, flags = weight(), iter([True, False, True, True, False])
    step = ls.optimize_loss(
        lambda: [np.ones((2, 3), np.float32)],
        "SGD",
        {},
        lambda step: step + 0.5,
        [variable],
        iter_size=2,
        skip_update_ph=lambda: next(flags),
    )
    rates = [step() or step.learning_rate for _ in range(5)]
    assert rates == [0.5, 0.5, 1.5, 1.5, 1.5]
    assert step.global_step.value == 2


def test_a_class_of_adamw_decays_as_it_says() -> None:
    variable = weight()
    before = variable.value
    step = ls.optimize_loss(
        lambda: [np.zeros((2, 3), np.float32)],
        ls.AdamWOptimizer,
        {"weight_decay": 0.25},
        lambda step: 0.5,
        [variable],
    )
    step()
    np.testing.assert_array_equal(variable.value, before * np.float32(0.75))


def made(**options: Any) -> Callable[[], Any]:
    given = {
        "loss": lambda: [None],
        "optimizer": "SGD",
        "optimizer_params": {},
        "learning_rate_decay_fn": lambda step: 0.1,
        "var_list": [weight()],
    }
    return partial(ls.optimize_loss, **{**given, **options})


def test_a_loss_is_not_scaled_twice() -> None:
    def scaled(learning_rate: float) -> Any:
        sgd = ls.GradientDescentOptimizer(learning_rate)
        return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0)

    with pytest.raises(ValueError):
        made(optimizer=scaled, dtype="mixed")()
    assert made(optimizer=scaled)().pipeline == ("unscale", "finite check", "update")


LARC = {"larc_eta": 0.1}
REFUSED: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"optimizer": "Momentun"}, ValueError),
    ({"optimizer": "Momentum"}, TypeError),
    ({"optimizer": "AdamW"}, KeyError),
    ({"optimizer_params": {"beta": 0.5}}, ValueError),
    ({"optimizer": "Adam", "optimizer_params": {"beta1": 2.0}}, ValueError),
    ({"optimizer_params": {"learning_rate": 0.1}}, TypeError),
    ({"optimizer": 3}, TypeError),
    (
        {"optimizer": ls.AdamOptimizer(), "optimizer_params": {"beta1": 0.5}},
        TypeError,
    ),
    ({"summaries": ["learning_rat"]}, ValueError),
    ({"dtype": "mixed", "loss_scaling": "Bakoff"}, ValueError),
    ({"dtype": "mixed", "loss_scaling": -1.0}, ValueError),
    ({"larc_params": {}}, ValueError),
    ({"clip_gradients": 1.0, "larc_params": LARC}, ValueError),
    ({"clip_gradients": 1.0, "larc_params": LARC}, AttributeError),
]


@pytest.mark.parametrize(
    ("options", "error"), REFUSED, ids=[str(row[0])[:40] for row in REFUSED]
)
def test_what_cannot_work_is_refused(options, error) -> None:
    with pytest.raises(error):
        made(**options)()


def test_strict_scales_the_decay_of_a_dict_that_is_used_twice_twice() -> None:
    given, decays = {"weight_decay": 0.5}, []
    for _ in range(2):
        step = strict.optimize_loss(
            lambda: [np.zeros((2, 3), np.float32)],
            "AdamW",
            given,
            lambda step: 0.5,
            [weight()],
        )
        step()
        decays.append(step.optimizer.arguments["weight_decay"])
    assert decays == [0.25, 0.125]
    assert float(given["weight_decay"]) == 0.125


@pytest.mark.parametrize("sparse_first", [True, False])
def test_the_sum_of_rows_and_a_dense_gradient_is_dense(sparse_first: bool) -> None:
    rows = Rows(np.array([1, 1]), np.ones((2, 2), np.float32), (3, 2))
    dense = np.ones((3, 2), np.float32)
    table = ls.Variable("table", np.zeros((3, 2), np.float32))
    answers = iter([rows, dense] if sparse_first else [dense, rows])
    step = ls.optimize_loss(
        lambda: [next(answers)], "SGD", {}, 1.0, [table], iter_size=2
    )
    step(), step()
    assert (-table.value).tolist() == [[0.5, 0.5], [1.5, 1.5], [0.5, 0.5]]


def test_a_step_that_fails_may_be_tried_again() -> None:
    class Failing(ls.GradientDescentOptimizer):
        fails = True

        def apply(self, *arguments: Any) -> None:
            if self.fails:
                raise OSError
            super().apply(*arguments)

    variable = ls.Variable("w", np.zeros(2, np.float32))
    step = ls.optimize_loss(lambda: [ONES], Failing, {}, 1.0, [variable], iter_size=2)
    step()
    with pytest.raises(OSError):
        step()
    assert (step.micro_step, step.accumulators[0].tolist()) == (1, [0.5, 0.5])
    assert step.global_step.value == 0
    step.optimizer.fails = False
    step()
    assert variable.value.tolist() == [-1.0, -1.0]


def taken(a: Array | None, b: Array | None, **options: Any) -> Any:
    """Return a step of gradient descent that was taken with two gradients."""
    variables = [ls.Variable(name, np.zeros(2, np.float32)) for name in "ab"]
    step = ls.optimize_loss(
        lambda: [a, b], "SGD", {}, lambda step: 1.0, variables, **options
    )
    step()
    return step


def test_a_variable_without_a_gradient_is_named() -> None:
    report = taken(ONES, None).last_step
    assert report == (True, "1 of 2 variables updated", ("b",))
