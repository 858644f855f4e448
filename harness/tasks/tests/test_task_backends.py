"""A task's model is found by its backend, and a device that is not there is refused."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError
from harness.tasks import TASKS, backends, runs_on

FRAMEWORKS = {"pytorch": "torch", "tf": "tensorflow"}
ABSENT = {"pytorch": "cuda:99", "tf": "NPU"}
"""Devices that no machine has."""


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_a_task_says_whether_a_backend_and_a_device_can_work(backend: str) -> None:
    pytest.importorskip(FRAMEWORKS[backend])
    for task in TASKS:
        if backend in runs_on(task):
            backends.prepare(task, backend, "cpu")
    refused = rf"{ABSENT[backend]}.*use cpu\.$"
    with pytest.raises(HarnessError, match=refused):
        backends.prepare("multitask_digits", backend, ABSENT[backend])
