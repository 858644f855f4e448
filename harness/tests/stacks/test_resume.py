"""A run that is saved and resumed in a fresh process goes on to the bit."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.tests.script_process import Request
from harness.tests.shared_processes import UNCHANGED, Processes
from lockstep.tests.wrappers import STACKS

WORKER = Path(__file__).with_name("resume_worker.py")
NEEDS = {
    "reference": "numpy",
    "pytorch": "torch",
    "tf eager": "tensorflow",
    "tf graph": "tensorflow",
    "keras3": "keras",
}
PROCESS = {"reference": "torch", "pytorch": "torch"}
"""Backend -> the kind of process in ``UNCHANGED``; the others need TensorFlow."""


@pytest.fixture(scope="module")
def resumed(
    tmp_path_factory: pytest.TempPathFactory, processes: Processes
) -> Callable[[str, str], dict[str, list[str]]]:
    """Return, for a backend, what came out otherwise in each stack."""

    results: dict[tuple[str, str], dict[str, list[str]]] = {}

    def differences(when: str, backend: str) -> dict[str, list[str]]:
        if (when, backend) in results:
            return results[when, backend]
        # What fails is not tried again by the tests of other stacks.
        results[when, backend] = {stack: ["its worker failed"] for stack in STACKS}
        folder = tmp_path_factory.mktemp("runs")
        kind = UNCHANGED[PROCESS.get(backend) == "torch"]
        frameworks = list(filter(importlib.util.find_spec, kind.split()))
        for act, process in (("record", kind), ("resume", f"{kind} again")):
            request = Request(
                str(WORKER), [act, str(folder), when, backend], with_harness=True
            )
            printed = processes.output_of(process, frameworks, request)
        results[when, backend] = json.loads(printed.splitlines()[-1])[backend]
        return results[when, backend]

    return differences


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("backend", NEEDS)
@pytest.mark.parametrize(
    "when",
    ["middle", pytest.param("every", marks=pytest.mark.slow)],
)
def test_a_resumed_run_is_the_run_that_went_on(
    resumed: Callable[[str, str], dict[str, list[str]]],
    when: str,
    backend: str,
    stack: str,
) -> None:
    if importlib.util.find_spec(NEEDS[backend]) is None:
        pytest.skip(f"needs {NEEDS[backend]}")
    found = resumed(when, backend)
    if stack not in found:
        pytest.skip(f"{backend} does not have all wrappers of {stack}")
    assert found[stack] == []
