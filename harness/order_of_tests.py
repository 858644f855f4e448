"""A pytest plugin: run the files with the longest tests first.

Several processes share the tests, one file at a time. If a process started a long file
last, the others would wait for it without work.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["LONG_FILES", "long_files_first"]

ROOT = Path(__file__).resolve().parent.parent
LONG_FILES = (
    # Those of Ray one after the other, because the files of a process share a cluster.
    "impls/lockstep/ray/tests/test_actor.py",
    "impls/lockstep/ray/tests/test_failures.py",
    "impls/lockstep/ray/tests/test_rules.py",
    "impls/lockstep/ray/tests/test_place.py",
    "harness/tests/test_examples.py",
    "harness/dropin/tests/test_programs.py",
    "impls/lockstep/keras3/tests/base/test_replicas.py",
    "impls/lockstep/tf/tests/base/test_replicas.py",
    "harness/runs/tests/test_repeatable.py",
    "harness/parity/tests/test_mutants.py",
    "harness/composition/tests/test_archives.py",
    "harness/pages/tests/test_pages.py",
    "impls/lockstep/keras3/tests/step/test_optimize_loss.py",
    "impls/lockstep/tf/tests/test_multitask.py",
    "harness/tasks/tests/test_worker_throughput.py",
    "harness/parity/tests/test_agreement.py",
    "harness/runs/tests/test_jobs.py",
    "harness/declarations/tests/test_own_experiments.py",
    "impls/lockstep/tf/tests/scaling/test_loss_scaling.py",
    "harness/tasks/tests/test_multitask_digits.py",
    "harness/composition/tests/test_checkpoints.py",
    "harness/nets/tests/test_frozen.py",
)
"""Test files that take more than twenty seconds, about the longest first."""


def long_files_first(items: list[pytest.Item], root: Path = ROOT) -> None:
    """Sort tests by their files. Tests of other files keep their order."""
    places = {root / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort all tests that were collected."""
    long_files_first(items)
