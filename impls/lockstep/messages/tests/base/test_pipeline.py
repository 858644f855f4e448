"""The stages of the pipeline, and what a stack of wrappers makes of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.interface import WRAPPERS
from lockstep.messages.base.pipeline import (
    ARGUMENTS,
    STAGES,
    in_order,
    pipeline_of,
    refuse_second_scale,
    strictly_ordered,
)
from lockstep.messages.step.optimize_loss import Settings

NAMES = [stage.name for stage in STAGES]


def stack(*names: str, clip_norm: float | None = None) -> Any:
    """Return objects of classes with these names, the first one outside."""
    inner = SimpleNamespace(inner_optimizer=None)
    for name in reversed(names):
        made = type(name, (), {})()
        made.inner_optimizer, made.clip_norm = inner, clip_norm
        inner = made
    return inner


def test_every_stage_is_taken_by_a_wrapper_or_an_argument() -> None:
    taken = {name for wrapping in WRAPPERS.values() for name in wrapping.stages}
    assert taken | set(ARGUMENTS) == set(NAMES)


def test_every_stage_has_one_sentence() -> None:
    assert all(stage.sentence.endswith(".") for stage in STAGES)
    assert not any(". " in stage.sentence for stage in STAGES)


@pytest.mark.parametrize("names", [tuple(WRAPPERS), tuple(reversed(WRAPPERS))])
def test_the_order_of_the_stages_is_not_that_of_the_stack(names) -> None:
    expected = ("unscale", "zero filter", "finite check", "update", "row clip")
    assert pipeline_of(stack(*names)) == expected


def test_a_wrapper_that_clips_takes_the_norm() -> None:
    found = pipeline_of(stack("MixedPrecisionOptimizerWrapper", clip_norm=1.0))
    assert found == ("unscale", "finite check", "norm", "clip", "update")


def test_a_subclass_takes_the_stages_of_its_base() -> None:
    base = type("MultitaskOptimizerWrapper", (), {"inner_optimizer": None})
    assert "zero filter" in pipeline_of(type("Mine", (base,), {})())


def test_strict_looks_for_infinities_after_clipping() -> None:
    found = strictly_ordered(in_order(NAMES))
    assert found.index("finite check") > found.index("larc")
    assert found[-2:] == ("update", "row clip")
    assert sorted(found) == sorted(NAMES)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("update",)),
        ({"iter_size": 2}, ("accumulate", "update")),
        ({"on_horovod": True}, ("reduce", "update")),
        ({"clip_gradients": 1.0}, ("norm", "clip", "update")),
        ({"larc_params": {"larc_eta": 0.1}}, ("larc", "update")),
        ({"iter_size": 2, "strict": True}, ("update",)),
    ],
)
def test_arguments_take_their_stages(options, expected) -> None:
    assert Settings(**options).pipeline(stack()) == expected


def test_a_second_scale_is_refused_at_any_depth() -> None:
    inner = stack("MultitaskOptimizerWrapper", "MixedPrecisionLossScaleOptimizer")
    with pytest.raises(ValueError, match="let one of the two scale"):
        refuse_second_scale("MixedPrecisionOptimizerWrapper", inner)
