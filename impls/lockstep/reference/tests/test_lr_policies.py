"""Laws of the policies in NumPy: where they begin, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep.reference import lr_policies

DECAYS: dict[str, dict[str, Any]] = {
    "exp_decay": {"decay_steps": 10, "decay_rate": 0.5, "use_staircase_decay": False},
    "poly_decay": {"decay_steps": 10, "power": 2.0},
    "cosine_decay": {"decay_steps": 10, "min_lr": 0.1},
    "inv_poly_decay": {"decay_steps": 10, "min_lr": 0.1},
}
WARMED = ["poly_decay", "cosine_decay", "inv_poly_decay"]


def rate(name: str, step: Any, **options: Any) -> Any:
    """Return the rate of a decay from 1 at a step."""
    policy = getattr(lr_policies, name)
    return policy(step, 1.0, **{**DECAYS[name], **options})


@pytest.mark.parametrize("name", DECAYS)
def test_a_decay_that_begins_later_is_the_same_decay_later(name: str) -> None:
    assert [rate(name, step, begin_decay_at=5) for step in range(6)] == [1.0] * 6
    for step in range(12):
        assert rate(name, step + 5, begin_decay_at=5) == rate(name, step)


# In float32, (0.1 - 0.02) + 0.02 is not 0.1.
@pytest.mark.parametrize("name", ["poly_decay", "cosine_decay"])
def test_the_first_step_of_a_decay_has_its_formula(name: str) -> None:
    options = {**DECAYS[name], "min_lr": 0.02}
    policy = getattr(lr_policies, name)
    later = policy(5, 0.1, **options, begin_decay_at=5)
    assert later == policy(0, 0.1, **options) != np.float32(0.1)


# 13 is the first whole number with which 0.1 in float32 is not 13 (0.1) / 13.
@pytest.mark.parametrize("name", WARMED)
def test_a_warm_up_ends_with_the_very_rate(name: str) -> None:
    options = {**DECAYS[name], "warmup_steps": 13, "begin_decay_at": 20}
    policy = getattr(lr_policies, name)
    rising = [policy(step, 0.1, **options) for step in range(13)]
    assert rising == [
        np.float32(0.1) * np.float32(s) / np.float32(13) for s in range(13)
    ]
    assert policy(13, 0.1, **options) == np.float32(0.1)


def test_a_warm_up_of_one_step_begins_at_zero() -> None:
    options = {"decay_steps": 2, "power": 1.0, "warmup_steps": 1}
    assert [rate("poly_decay", step, **options) for step in (0, 1)] == [0, 0.5]


def test_the_inverse_decay_keeps_to_its_least_rate_also_in_the_warm_up() -> None:
    least = np.float32(0.1)
    assert rate("inv_poly_decay", 0, warmup_steps=10) == least


def test_strict_divides_by_a_length_of_zero_at_the_first_step_of_the_decay() -> None:
    with np.errstate(invalid="ignore"):
        found = rate("exp_decay", 0, decay_steps=0, strict=True)
    assert np.isnan(found)
