"""Calls of a step: what counts, and that counting twice gives the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harness.layout.calls import Calls, Step, count_calls
from harness.layout.steps import steps_of
from harness.processes.environment import child_variables
from lockstep.messages.errors import LockstepError
from lockstep.registry import BACKENDS

FIRST = """
import contextlib

def plain():
    return [square(x) for x in range(3)]

def square(x):
    return (lambda: x * x)()

def numbers():
    yield 1
    yield 2
    yield 3

@contextlib.contextmanager
def context():
    yield
"""

SECOND = """
def call(function):
    return function()
"""


@pytest.fixture
def modules(tmp_path: Path) -> tuple[ModuleType, ModuleType]:
    """Two modules in files of their own."""
    made_up = []
    for name, text in (("first", FIRST), ("second", SECOND)):
        path = tmp_path / f"{name}.py"
        path.write_text(text, "utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made_up.append(module)
    return tuple(made_up)


def test_functions_and_lambdas_count_but_no_comprehension(modules, tmp_path) -> None:
    first, _ = modules
    assert count_calls(Step(first.plain), tmp_path) == Calls(1 + 3 + 3, 1, 0)


def test_a_generator_counts_once(modules, tmp_path) -> None:
    first, _ = modules
    assert count_calls(Step(lambda: list(first.numbers())), tmp_path).calls == 1

    def enter() -> None:
        with first.context():
            pass

    assert count_calls(Step(enter), tmp_path).calls == 1


def test_a_change_of_file_is_a_call_in_another_file_than_the_last(
    modules, tmp_path
) -> None:
    first, second = modules

    def step() -> None:
        second.call(lambda: first.square(2))  # second, first (and its lambda)
        second.call(int)  # second
        second.call(int)

    assert count_calls(Step(step), tmp_path) == Calls(5, 2, 2)


def test_only_the_fourth_step_is_counted_and_never_what_prepares_it(
    modules, tmp_path
) -> None:
    first, second = modules
    events = []

    def run() -> None:
        events.append("run")
        if events.count("run") < 4:
            first.plain()
        else:
            first.square(1)

    def prepare() -> None:
        events.append("prepare")
        second.call(int)

    assert count_calls(Step(run, prepare), tmp_path) == Calls(2, 1, 0)
    assert events == ["prepare", "run"] * 4


def test_a_profiler_that_is_there_stays(modules, tmp_path) -> None:
    def fail() -> None:
        raise ValueError("in a step")

    def other(*arguments: object) -> None: ...

    before = sys.getprofile()
    sys.setprofile(other)
    try:
        with pytest.raises(ValueError, match="in a step"):
            count_calls(Step(fail), tmp_path)
        count_calls(Step(lambda: None), tmp_path)
        assert sys.getprofile() is other
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize(
    "backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in BACKENDS]
)
def test_counting_twice_gives_the_same(backend: str) -> None:
    first, second = (
        {name: count_calls(step) for name, step in steps_of(backend).items()}
        for _ in range(2)
    )
    assert first == second
    for name, calls in first.items():
        assert calls.calls > calls.changes >= calls.files - 1 > 0, name


def test_the_order_of_sets_does_not_matter() -> None:
    code = (
        "from harness.layout.calls import count_calls\n"
        "from harness.layout.steps import steps_of\n"
        "print({n: count_calls(s) for n, s in steps_of('reference').items()})"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **child_variables(), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    (output,) = outputs
    assert "LARC" in output


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(LockstepError, match="jax"):
        steps_of("jax")
