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
    "harness/composition/tests/test_checkpoints.py",
    "impls/lockstep/ray/tests/test_actor.py",
    "harness/tests/test_examples.py",
    "harness/tasks/tests/test_worker_throughput.py",
    "harness/bench/tests/test_bench_command.py",
    "impls/lockstep/ray/tests/test_failures.py",
    "harness/composition/tests/test_archives.py",
    "impls/lockstep/ray/tests/test_rules.py",
    "harness/parity/tests/test_agreement.py",
    "impls/lockstep/keras3/tests/base/test_replicas.py",
    "impls/lockstep/keras3/tests/test_multitask.py",
    "harness/runs/tests/test_run.py",
    "harness/runs/tests/test_jobs.py",
    "impls/lockstep/keras3/tests/workers/test_agn_remote.py",
    "impls/lockstep/tf/tests/base/test_replica_processes.py",
    "impls/lockstep/tf/tests/base/test_replicas.py",
    "harness/pages/tests/test_pages.py",
    "harness/dropin/tests/test_programs.py",
    "harness/runs/tests/test_repeatable.py",
    "harness/tasks/tests/test_multitask_digits.py",
    "harness/nets/tests/test_frozen.py",
    "impls/lockstep/tf/tests/scaling/test_loss_scaling.py",
    "impls/lockstep/keras3/tests/scaling/test_loss_scaling.py",
    "harness/declarations/tests/test_own_experiments.py",
)
"""Test files that take more than half a minute, the longest first."""


def long_files_first(items: list[pytest.Item], root: Path = ROOT) -> None:
    """Sort tests by their files. Tests of other files keep their order."""
    places = {root / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort all tests that were collected."""
    long_files_first(items)
