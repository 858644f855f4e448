"""A pytest plugin: run the files with the longest tests first, some files together.

Several processes share the tests, one file at a time. If a process started a long file
last, the others would wait for it without work. Files whose tests share something that
takes seconds to start have the same process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONG_FILES = (
    "impls/lockstep/ray/tests/test_actor.py",
    "impls/lockstep/ray/tests/test_failures.py",
    "impls/lockstep/ray/tests/test_rules.py",
    "impls/lockstep/ray/tests/test_place.py",
    "harness/tests/test_examples.py",
    "impls/lockstep/keras3/tests/test_replicas.py",
    "impls/lockstep/tf/tests/test_replicas.py",
    "harness/runs/tests/test_repeatable.py",
    "harness/pages/tests/test_pages.py",
    "impls/lockstep/keras3/tests/test_optimize_loss.py",
    "impls/lockstep/tf/tests/test_multitask.py",
    "harness/tasks/tests/test_worker_throughput.py",
    "harness/parity/tests/test_agreement.py",
    "harness/runs/tests/test_jobs.py",
    "impls/lockstep/tf/tests/test_loss_scaling.py",
    "harness/tasks/tests/test_multitask_digits.py",
    "harness/tests/stacks/test_resume.py",
)
"""Test files that take more than twenty seconds, about the longest first."""
ONE_PROCESS = (
    # They share a cluster.
    ("impls/lockstep/ray/tests/",),
    # They share processes in which every script leaves the frameworks as they were.
    (
        "harness/tests/test_examples.py",
        "harness/tests/stacks/test_resume.py",
        "harness/pages/tests/test_readme.py",
    ),
)
"""Groups of files and folders whose tests run in the same process."""


def unit_of(test: str) -> str:
    """Return a name that a test shares with those that run in the same process."""
    file = test.split("::", 1)[0]
    return next((group[0] for group in ONE_PROCESS if file.startswith(group)), file)


def long_files_first(items: list[pytest.Item], root: Path = ROOT) -> None:
    """Sort tests by their files. Tests of other files keep their order."""
    places = {root / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort all tests that were collected."""
    long_files_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what hands out whole units, where files stay in one process."""
    if config.getvalue("dist") != "loadfile":
        return None
    # Not everywhere where tests run: environments for a GPU are without it.
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = unit_of
    return scheduler
