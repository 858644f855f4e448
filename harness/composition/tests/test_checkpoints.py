"""A run that is saved at any step, and resumed elsewhere, goes on to the bit."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from harness.composition.layers import BASES
from harness.composition.tests.resume_worker import stacks_of
from harness.composition.wrappers import FEW_STACKS, STACKS
from harness.processes.environment import child_variables

WORKER = "harness.composition.tests.resume_worker"
NEEDS = {
    "reference": "numpy",
    "pytorch": "torch",
    "tf eager": "tensorflow",
    "tf graph": "tensorflow",
    "keras3": "keras",
}


TOGETHER = [["keras3", "tf eager", "tf graph"], ["pytorch", "reference"]]
"""Backends whose runs share a process: it is the imports that take long."""

CASES = [
    pytest.param(which, driver, stack, marks=[pytest.mark.soak] * (which == "all"))
    for which in ("few", "all")
    for driver in NEEDS
    for stack in stacks_of(driver, which)
]
"""The soak saves before every step, and every stack on every backend."""

Found = dict[str, dict[str, list[str]]]


def act(what: str, folder: Path, which: str, backends: list[str]) -> Found:
    """Record or resume the stacks of some backends in a process of its own.

    Args:
        which: the steps: ``few`` or ``all``.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            WORKER,
            what,
            str(folder),
            which,
            *backends,
        ],
        capture_output=True,
        text=True,
        env=child_variables(),
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Found]:
    """Return, for each backend that is here, what came out otherwise in each stack."""
    here = {
        driver for driver, needs in NEEDS.items() if importlib.util.find_spec(needs)
    }
    groups = [
        [driver for driver in backends if driver in here] for backends in TOGETHER
    ]

    @cache
    def after(which: str) -> Found:
        folder = tmp_path_factory.mktemp("runs")

        def both(backends: list[str]) -> Found:
            act("record", folder, which, backends)
            return act("resume", folder, which, backends)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(both, filter(None, groups)))
        return {driver: stacks for part in found for driver, stacks in part.items()}

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
