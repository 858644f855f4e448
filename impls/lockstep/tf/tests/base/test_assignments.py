"""Eager assignments create an object that reads the variable only if it is read.

TensorFlow creates one by default, which takes longer than a small assignment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from harness.parity import drivers
from harness.parity.cases import FAMILIES, Case, read_cases
from harness.parity.replay import replay
from lockstep import tf as ls

GOLDEN = Path(drivers.__file__).parent.parent / "golden"
TENSORFLOW = Path(resource_variable_ops.__file__).parent.parent
OPERATIONS = {TENSORFLOW / "ops", TENSORFLOW / "util", TENSORFLOW / "framework"}
"""Folders of TensorFlow's assignments; its optimizers are in another one."""
MOST = 12
"""About so many cases of a family are replayed."""


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Return the unread objects of Lockstep's assignments, with their lines, by id."""
    lines: dict[int, str] = {}
    kind = resource_variable_ops._UnreadVariable
    create: Callable[..., None] = kind.__init__
    read: Callable[..., Any] = kind._read_variable_op

    def note(self: Any, *arguments: Any, **options: Any) -> None:
        create(self, *arguments, **options)
        frame = sys._getframe(1)
        while Path(frame.f_code.co_filename).parent in OPERATIONS:
            frame = frame.f_back
        # By the module's name: a changed copy of it may be in another folder.
        if (module := frame.f_globals["__name__"]).startswith("lockstep."):
            lines[id(self)] = f"{module}:{frame.f_lineno}"

    def forget(self: Any, *arguments: Any, **options: Any) -> Any:
        lines.pop(id(self), None)
        return read(self, *arguments, **options)

    monkeypatch.setattr(kind, "__init__", note)
    monkeypatch.setattr(kind, "_read_variable_op", forget)
    return lines


def cases_of(family: str) -> list[Case]:
    """Return some cases of a family, spread over its list."""
    cases = read_cases(GOLDEN, [family])
    return cases[:: max(1, len(cases) // MOST)]


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_an_assignment_returns_is_read(family, strict, unread) -> None:
    driver = drivers.load("tf", "eager", strict=strict)
    rows = [replay(case, driver) for case in cases_of(family)]
    assert any(row.status == "passed" for row in rows)
    assert not unread


def train_half_with_novograd() -> None:
    w = tf.Variable([1.0], dtype=tf.float16)
    ls.NovoGrad(0.5).apply_gradients([(tf.ones([1], tf.float16), w)])


def accumulate_rows() -> None:
    table = tf.Variable([[1.0], [2.0]])
    step = ls.optimize_loss(
        lambda: tf.reduce_sum(tf.gather(table, [1])),
        "SGD",
        {},
        lambda global_step: 0.5,
        [table],
        iter_size=2,
    )
    step()
    step()


def commit_to_the_center() -> None:
    w, getter = tf.Variable([1.0]), ls.AGNCustomGetter("/cpu:0")
    getter([w])
    sgd = ls.GradientDescentOptimizer(0.5)
    opt = ls.AGNOptimizer(sgd, 1, getter, 1, commit="delta")
    opt.apply_gradients([(tf.ones([1]), w)])


@pytest.mark.parametrize(
    "step", [train_half_with_novograd, accumulate_rows, commit_to_the_center]
)
def test_what_the_assignment_of_a_step_returns_is_read(step, unread) -> None:
    step()
    assert not unread
