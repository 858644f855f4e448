"""A task's model is found by its backend, and a device that is not there is refused."""

from __future__ import annotations

import importlib.util

import pytest

from harness.errors import HarnessError
from harness.tasks import TASKS, backends, runs_on

FRAMEWORKS = {"pytorch": "torch", "tf": "tensorflow"}
ABSENT = {"pytorch": "cuda:99", "tf": "NPU"}
"""Devices that no machine has."""


@pytest.fixture(params=FRAMEWORKS)
def backend(request: pytest.FixtureRequest) -> str:
    """A backend whose framework is installed."""
    name: str = request.param
    if importlib.util.find_spec(FRAMEWORKS[name]) is None:
        pytest.skip(f"{FRAMEWORKS[name]} is not installed")
    return name


def test_a_device_that_is_not_there_is_refused_in_one_sentence(backend: str) -> None:
    with pytest.raises(HarnessError) as caught:
        backends.prepare("multitask_digits", backend, ABSENT[backend])
    told = str(caught.value)
    assert ABSENT[backend] in told
    assert "use cpu" in told
    assert "\n" not in told


def test_every_task_says_whether_a_backend_can_work(backend: str) -> None:
    for task in TASKS:
        if backend in runs_on(task):
            backends.prepare(task, backend, "cpu")
