"""The driver: what the harness hands in and gets back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep.interface import Rows
from lockstep.tf.tests.trajectory import rows


def test_a_pattern_is_built_once_whatever_its_number_of_rows(
    new_driver: Callable[..., Any], mode: str
) -> None:
    built = []
    driver = new_driver()
    same = driver.compile(lambda gradients: built.append(1) or gradients)
    for k in (3, 0, 1, 2):
        same([np.zeros(2, np.float32), rows(range(k), np.zeros((k, 2)), 4, 2), None])
    first = len(built)
    same([None, rows([1], [[1, 2]], 4, 2), None])
    assert first == (4 if mode == "eager" else 1)
    assert len(built) == first + 1


def test_gradients_come_back_as_they_went_in(new_driver: Callable[..., Any]) -> None:
    given = [
        np.float16([1, 2]),
        None,
        rows([2, 0], [[1, 2], [3, 4]], 4, 2),
        rows([1], [5.0]),
    ]
    back = new_driver().compile(lambda gradients: {"nest": gradients})(given)["nest"]
    assert back[1] is None
    assert back[0].dtype == np.float16
    assert back[0].tolist() == [1, 2]
    for ours, theirs in zip(back[2:], given[2:], strict=True):
        assert isinstance(ours, Rows)
        assert ours.dense_shape == theirs.dense_shape
        assert ours.indices.tolist() == theirs.indices.tolist()
        assert ours.values.tolist() == theirs.values.tolist()


def test_what_is_applied_runs_even_if_nothing_is_returned(
    new_driver: Callable[..., Any], names: Any
) -> None:
    driver = new_driver(names)
    w, counter = driver.variable("w", np.float32([1, 2])), driver.counter()
    opt = driver.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])

    def step(gradients: list[Any]) -> None:
        opt.apply_gradients([(gradients[0], w)], global_step=counter)

    assert driver.compile(step)([np.float32([1, 1])]) is None
    assert driver.read(w).tolist() == [0, 1]
    assert driver.read(counter) == 1


def test_state_that_is_not_made_yet_is_none(new_driver: Callable[..., Any]) -> None:
    driver = new_driver()
    w = driver.variable("w", np.float32([1, 2]))
    opt = driver.optimizer("Adam", {}, [w])
    assert driver.slot(opt, w, "m") is None
    assert driver.shared(opt) == {}
    driver.compile(lambda g: opt.apply_gradients([(g[0], w)]))([np.float32([1, 1])])
    assert driver.slot(opt, w, "m").dtype == np.float32
    assert sorted(driver.shared(opt)) == ["beta1_power", "beta2_power"]


@pytest.mark.parametrize("name", ["ValueError", "InvalidArgumentError"])
def test_errors_are_found_by_name(new_driver: Callable[..., Any], name: str) -> None:
    (found,) = new_driver().expects(name)
    assert found.__name__ == name
