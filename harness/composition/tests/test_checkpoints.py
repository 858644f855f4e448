"""A run that is saved at any step, and resumed elsewhere, goes on to the bit."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from harness.composition.layers import BASES
from harness.composition.tests.resume_worker import stacks_of
from harness.composition.wrappers import FEW_STACKS, STACKS
from harness.tests.script_process import Request
from harness.tests.shared_processes import UNCHANGED, Processes

WORKER = Path(__file__).with_name("resume_worker.py")
NEEDS = {
    "reference": "numpy",
    "pytorch": "torch",
    "tf eager": "tensorflow",
    "tf graph": "tensorflow",
    "keras3": "keras",
}
BACKENDS = (("keras3", "tf eager", "tf graph"), ("pytorch", "reference"))
"""Backends whose runs share a process, for each kind in ``UNCHANGED``."""

CASES = [
    pytest.param(which, driver, stack, marks=[pytest.mark.soak] * (which == "all"))
    for which in ("few", "all")
    for driver in NEEDS
    for stack in stacks_of(driver, which)
]
"""The soak saves before every step, and every stack on every backend."""

Found = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def resumed(
    tmp_path_factory: pytest.TempPathFactory, processes: Processes
) -> Callable[[str], Found]:
    """Return, for each backend that is here, what came out otherwise in each stack."""
    here = {
        driver for driver, needs in NEEDS.items() if importlib.util.find_spec(needs)
    }

    @cache
    def after(which: str) -> Found:
        folder, found = tmp_path_factory.mktemp("runs"), Found()
        for kind, backends in zip(UNCHANGED, BACKENDS, strict=True):
            chosen = [driver for driver in backends if driver in here]
            frameworks = list(filter(importlib.util.find_spec, kind.split()))
            if not chosen:
                continue
            for act, process in (("record", kind), ("resume", f"{kind} again")):
                arguments = [act, str(folder), which, *chosen]
                request = Request(str(WORKER), arguments, with_harness=True)
                printed = processes.output_of(process, frameworks, request)
            found |= json.loads(printed.splitlines()[-1])
        return found

    return after


@pytest.mark.slow
@pytest.mark.parametrize(("which", "driver", "stack"), CASES)
def test_a_run_of_50_steps_resumed_in_a_fresh_process_is_the_same_run(
    resumed: Callable[[str], Found], which: str, driver: str, stack: str
) -> None:
    if importlib.util.find_spec(NEEDS[driver]) is None:
        pytest.skip(f"needs {NEEDS[driver]}")
    assert resumed(which)[driver][stack] == []


def test_few_stacks_hold_every_layer_and_base() -> None:
    assert set(FEW_STACKS) < set(STACKS)
    few, names = (set(" ".join(stacks).split()) for stacks in (FEW_STACKS, STACKS))
    assert few == names >= set(BASES)
