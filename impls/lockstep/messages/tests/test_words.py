"""Sentences, pairs and parameter tables."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lockstep.interface import StepReport
from lockstep.messages import multitask
from lockstep.messages.base.pairs import as_pairs, require_gradients, require_like
from lockstep.messages.clipping import variable_clipping
from lockstep.messages.errors import (
    AxesError,
    DtypeError,
    MalformedPairsError,
    NoGradientsError,
    OutOfRangeError,
    ShapeError,
    UnknownNameError,
    nearest,
    unknown_name,
)
from lockstep.messages.optimizers.parameters import OPTIMIZERS


def test_the_nearest_name_ignores_case() -> None:
    assert nearest("ADAMM", ["Adam", "Ftrl"]) == "Adam"
    assert nearest("zzz", ["Adam", "Ftrl"]) is None


def test_an_unknown_name_lists_what_is_known() -> None:
    error = unknown_name("optimizer", "Adm", ["Adam", "Ftrl"])
    assert str(error) == (
        "optimizer: expected one of Adam, Ftrl, got 'Adm'; did you mean 'Adam'?"
    )
    assert str(unknown_name("optimizer", "?", ["Adam"])).endswith("choose one of them.")


def test_pairs_are_materialised_once() -> None:
    assert as_pairs(((g, v) for g, v in [(1, "a"), (None, "b")]), "x") == [
        (1, "a"),
        (None, "b"),
    ]


@pytest.mark.parametrize(
    ("pairs", "error", "words"),
    [
        (3, MalformedPairsError, "got 3"),
        ([1, 2], MalformedPairsError, "int at position 0"),
        ([(1, 2), (1, 2, 3)], MalformedPairsError, "tuple at position 1"),
        ([], NoGradientsError, "an empty list"),
        (iter(()), NoGradientsError, "an empty list"),
    ],
)
def test_what_is_no_list_of_pairs_is_refused(
    pairs: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        as_pairs(pairs, "apply_gradients")


def test_all_absent_names_the_variables() -> None:
    with pytest.raises(NoGradientsError, match="every one of a, b"):
        require_gradients([(None, 1), (None, 2)], "x", ["a", "b"])
    require_gradients([(None, 1), (0.0, 2)], "x", ["a", "b"])


def test_a_gradient_must_have_the_shape_and_dtype_of_its_variable() -> None:
    with pytest.raises(ShapeError, match=r"shape \[2\] for 'w', got \[3\]"):
        require_like("x", "w", ((3,), "float32"), ((2,), "float32"))
    with pytest.raises(DtypeError, match="dtype float32 for 'w', got float16"):
        require_like("x", "w", ((2,), "float16"), ((2,), "float32"))
    require_like("x", "w", ((2,), "float32"), ((2,), "float32"))


@pytest.mark.parametrize(
    ("name", "kwargs", "error", "words"),
    [
        ("Adam", {"learning_rate": math.nan}, OutOfRangeError, "finite number >= 0"),
        ("Adam", {"learning_rate": "0.1"}, OutOfRangeError, "got '0.1'"),
        ("Adam", {"learning_rate": True}, OutOfRangeError, "got True"),
        ("Adam", {"beta1": 1.0}, OutOfRangeError, r"\[0, 1\), got 1.0"),
        ("Adam", {"epsilon": -1.0}, OutOfRangeError, "epsilon"),
        ("Adam", {"beta3": 0.5}, UnknownNameError, "did you mean 'beta"),
        ("Momentum", {"learning_rate": 0.1}, TypeError, "needs momentum"),
        ("RMSProp", {"learning_rate": 0.1, "centered": 1}, OutOfRangeError, "bool"),
        ("Ftrl", {"learning_rate": 1, "learning_rate_power": 0.5}, ValueError, "<= 0"),
    ],
)
def test_arguments_outside_their_range_are_refused(
    name: str, kwargs: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        OPTIMIZERS[name].bind((), kwargs)


def test_binding_fills_in_the_defaults_in_positional_order() -> None:
    assert OPTIMIZERS["AdamW"].bind((0.01,), {"beta2": 0.5}) == {
        "weight_decay": 0.01,
        "learning_rate": 0.001,
        "beta1": 0.9,
        "beta2": 0.5,
        "epsilon": 1e-8,
    }
    with pytest.raises(TypeError, match="at most 3 arguments, got 4"):
        OPTIMIZERS["GradientDescent"].bind((0.1, False, "SGD", 0.2), {})


def test_binding_knows_the_places_of_tf() -> None:
    bound = OPTIMIZERS["Momentum"].bind((0.1, 0.9, True, "Momentum"), {})
    assert bound == {"learning_rate": 0.1, "momentum": 0.9, "use_nesterov": False}
    bound = OPTIMIZERS["Momentum"].bind((0.1, 0.9, False, "Momentum", True), {})
    assert bound["use_nesterov"] is True


@pytest.mark.parametrize("limit", [0.0, -1.0, math.inf, math.nan, "1", None])
def test_a_limit_that_is_no_positive_number_is_refused(limit: Any) -> None:
    with pytest.raises(OutOfRangeError, match="finite number > 0"):
        multitask.check_clip_norm(limit)


def test_the_report_says_what_was_left_alone_and_why() -> None:
    assert multitask.report(["a", "b"], [False, False], [False, False]) == (
        True,
        "every gradient had a nonzero element",
        (),
    )
    report = multitask.report(
        ["a", "b", "c"], [True, False, False], [False] * 2 + [True]
    )
    assert report == (True, "of 3 gradients 1 all zero and 1 absent", ("a", "c"))
    assert not multitask.report(["a"], [True], [False]).applied


@pytest.mark.parametrize("limit", [0.0, -1.0, math.inf, math.nan, "1", None])
def test_a_norm_that_no_row_can_keep_is_refused(limit: Any) -> None:
    with pytest.raises(OutOfRangeError, match="the largest norm that a row may keep"):
        variable_clipping.check_max_norm(limit)


@pytest.mark.parametrize("dims", [1, None, "1", {1: 2}, [1.0], [True], ["1"]])
def test_what_is_no_list_of_axes_is_refused(dims: Any) -> None:
    with pytest.raises(AxesError, match="a list of axes for 'w'"):
        variable_clipping.listed_axes("w", dims)


def test_axes_are_copied_and_resolved() -> None:
    dims = [-1, 0]
    axes = variable_clipping.listed_axes("w", dims)
    dims.clear()
    assert variable_clipping.resolved_axes("w", axes, 3) == (0, 2)
    assert variable_clipping.resolved_axes("w", (), 0) == ()
    for wrong in ([3], [-4], [0, -3]):
        with pytest.raises(OutOfRangeError, match="'w'"):
            variable_clipping.resolved_axes("w", wrong, 3)


def test_the_report_says_how_many_rows_were_clipped() -> None:
    report = variable_clipping.report(None, ["a", "b"], [False, True], 3, 1)
    assert report == (True, "of 2 gradients 1 absent; 1 of 3 rows clipped", ("b",))
    inner = StepReport(False, "of 2 gradients 2 all zero", ("a", "b"))
    around = variable_clipping.report(inner, ["a", "b"], [False, False], 3, 0)
    assert around == (False, f"{inner.reason}; 0 of 3 rows clipped", inner.skipped)
