"""What the getter takes, and which variables join a center."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep.errors import GetterError
from lockstep.reference import AGNCustomGetter, Variable
from lockstep.tests.registering import assert_second_waits


def weight(name: str = "w") -> Variable:
    return Variable(name, np.float32([1.0, 2.0]))


def filled() -> AGNCustomGetter:
    getter = AGNCustomGetter("/cpu:0")
    getter([weight()])
    return getter


def test_a_worker_waits_until_another_has_registered_all_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = AGNCustomGetter("/cpu:0")
    second = AGNCustomGetter("/cpu:0", center=first.center)
    assert_second_waits(first, second, lambda: [weight("v"), weight("w")], monkeypatch)


def test_a_worker_joins_only_with_names_that_the_center_has() -> None:
    first = filled()
    second = AGNCustomGetter("/cpu:0", center=first.center)
    with pytest.raises(ValueError):
        second([weight(), weight("v")])
    assert not second._global_map
    assert list(first.center.variables) == ["w"]


def test_the_worker_that_filled_the_center_adds_and_others_follow() -> None:
    first, later = filled(), weight("later")
    second = AGNCustomGetter("/cpu:0", center=first.center)
    second([weight()])
    with pytest.raises(ValueError):
        second([later])
    first([weight("later")])
    second([later])
    assert second._global_map[later] is first.center.variables["later"]


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a getter for a center": (
        lambda: AGNCustomGetter("/cpu:0", center=filled()),
        r"got AGNCustomGetter; pass its attribute, center=getter\.center",
    ),
    "a word for a center": (lambda: AGNCustomGetter("/cpu:0", center="c"), "got str"),
    "nothing": (lambda: AGNCustomGetter("/cpu:0")(None), "variables, got NoneType"),
    "a word": (lambda: AGNCustomGetter("/cpu:0")("w"), "variables, got str"),
    "a dict": (lambda: AGNCustomGetter("/cpu:0")({"w": weight()}), "pass its items or"),
    "a variable": (lambda: AGNCustomGetter("/cpu:0")(weight()), "put it into a list"),
    "arrays": (
        lambda: AGNCustomGetter("/cpu:0")([np.ones(2)]),
        "got ndarray among them",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_getter_cannot_take_is_one_sentence(name: str) -> None:
    make, _ = WRONG[name]
    with pytest.raises(GetterError):
        make()
