"""The child process of one trial: import the mutant, run the checks until one fails.

``python -m harness.mutation.trial FOLDER`` reads ``task.json`` in the folder and writes
``outcome.json``. A task without a module tries the unchanged checkout. The changed file
must be installed before Lockstep is imported, so imports are inside functions.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.mutation.finder import install, reach_children
from harness.mutation.mutant import ROOT

if TYPE_CHECKING:
    from harness.parity.cases import Case

MEMORY = 16 * 2**30
"""Bytes that a trial may allocate. Some mutants would allocate all memory."""

LASTING = ("v1",)
"""Modes that change their framework permanently. Their cases are run last."""


PYTEST_OPTIONS = (
    *("-q", "--tb=no", "--no-header"),
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:benchmark"),
    *("-m", "not slow and not soak and not gpu"),
)
"""Options of pytest: no long tests."""


@dataclass(frozen=True)
class Outcome:
    """The result of trying a mutant.

    Attributes:
        status: "killed"; "survived"; or "broken" if it cannot be imported.
        kind: what killed it: "case", "test", "time" or "crash".
        by: the failed case or test, or how the import or the process failed.
    """

    status: str
    kind: str = ""
    by: str = ""


class NamedTests:
    """A pytest plugin that runs only the named tests, in the order of the names.

    It remembers the first test or file that fails.

    Args:
        names: of single tests, or of test files.
        allowance: limits the time of each test.
    """

    def __init__(self, names: Sequence[str], allowance: Allowance) -> None:
        self.by, self.allowance = "", allowance
        self.ranks = {name: rank for rank, name in enumerate(names)}
        self.files = {ROOT / name: rank for name, rank in self.ranks.items()}

    def _rank(self, item: Any) -> int | None:
        return self.ranks.get(item.nodeid, self.files.get(item.path))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Deselect the other tests of the files, and sort the rest by name order."""
        chosen = [
            (rank, item) for item in items if (rank := self._rank(item)) is not None
        ]
        items[:] = [item for _, item in sorted(chosen, key=itemgetter(0))]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Start the allowance of a test."""
        self.allowance.begin("test", nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record a test that failed."""
        if report.failed:
            self.by = self.by or report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        """Record a file that cannot be imported."""
        if report.failed:
            self.by = self.by or report.nodeid


def main(arguments: Sequence[str]) -> None:
    """Try the task of a folder."""
    folder = Path(arguments[0])
    task = json.loads((folder / "task.json").read_text("utf-8"))
    allowance = Allowance(folder, task["seconds"], task["allowed"])
    _limit_memory()
    install(str(folder))
    reach_children(folder)
    outcome = _import_error(task) or _first_failure(task, allowance)
    text = json.dumps(asdict(outcome))
    (folder / "outcome.json").write_text(text, "utf-8")


class Allowance:
    """Ends this process after a limit of processor time.

    Time in which other processes run is not counted, so a busy machine does not kill a
    mutant. Where the system cannot count, only the parent's longer limit applies.

    Args:
        folder: of the trial. The file ``check`` there names the running check.
        seconds: limit for everything.
        by_name: limits for single cases and tests, in seconds.
    """

    def __init__(self, folder: Path, seconds: int, by_name: Mapping[str, int]) -> None:
        self.file, self.seconds, self.by_name = folder / "check", seconds, by_name
        self.begin("case", "")

    def begin(self, kind: str, name: str) -> None:
        """Start the time limit of a case or test."""
        self.file.write_text(json.dumps([kind, name]), "utf-8")
        if sys.platform == "win32":
            return
        import resource

        end = time.process_time() + self.by_name.get(name, self.seconds)
        soft = min(math.ceil(end), self.seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, self.seconds + 5))


def _limit_memory() -> None:
    """Limit the memory of this process."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _import_error(task: Mapping[str, Any]) -> Outcome | None:
    """Import the backend and the mutant. Return the outcome if that fails."""
    try:
        importlib.import_module(f"lockstep.{task['backend']}")
        registry = importlib.import_module("lockstep.registry")
        if registry.find(task["backend"]).has_strict:
            importlib.import_module(f"lockstep.{task['backend']}.strict")
        importlib.import_module(task["module"] or "lockstep")
    except Exception as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        return Outcome("broken", by=got)
    return None


def _first_failure(task: Mapping[str, Any], allowance: Allowance) -> Outcome:
    """Run the checks in their order and stop at the first that fails.

    Cases in the modes of `LASTING` are replayed after all other checks.
    """
    for check in task["checks"]:
        if check["kind"] == "test":
            by = _failed_test(check, allowance)
        else:
            by = _failed_case(task["backend"], check["names"], allowance)
        if by:
            return Outcome("killed", check["kind"], by)
    cases = [check for check in task["checks"] if check["kind"] == "case"]
    names = [name for check in cases for name in check["names"]]
    by = _failed_case(task["backend"], names, allowance, lasting=True)
    return Outcome("killed", "case", by) if by else Outcome("survived")


def _failed_case(
    backend: str, names: Sequence[str], allowance: Allowance, lasting: bool = False
) -> str:
    """Replay cases of families, or cases named ``MODE ID``; return one that fails.

    They are replayed either only in the modes of `LASTING`, or only in the others.
    """
    from harness.parity.replay import judge

    for mode, case in cases_of(backend, names):
        if (mode in LASTING) is not lasting:
            continue
        allowance.begin("case", f"{mode} {case.id}")
        if judge(case, backend, mode).status == "failed":
            return f"{mode} {case.id}"
    return ""


def cases_of(backend: str, names: Sequence[str]) -> Iterator[tuple[str, Case]]:
    """Yield modes and cases: the first of each kind in each mode, then the second."""
    from harness.parity.cases import FOUND, GOLDEN, read_cases
    from harness.parity.command import plan_backend
    from lockstep import registry

    cases = [*read_cases(GOLDEN), *read_cases(FOUND)]
    by_id = {case.id: case for case in cases}
    single = [name.split(" ", 1) for name in names if " " in name]
    yield from ((mode, by_id[id_]) for mode, id_ in single if id_ in by_id)
    entry = registry.find(backend)
    of_families = [case for case in cases if case.family in names]
    plan, _ = plan_backend(of_families, entry, entry.modes, everything=False)
    groups = defaultdict(list)
    for mode, planned in plan.items():
        for case in planned:
            groups[mode, case.family, case.kind].append((mode, case))
    for round_ in zip_longest(*groups.values()):
        yield from filter(None, round_)


def _failed_test(check: Mapping[str, Any], allowance: Allowance) -> str:
    """Run the tests of a check; return the name of one that fails.

    Tests that killed a mutant in an earlier run but no longer exist are ignored.
    """
    tests = NamedTests(check["names"], allowance)
    files = dict.fromkeys(name.split("::", 1)[0] for name in check["names"])
    present = [file for file in files if (ROOT / file).exists()]
    if not present:
        return ""
    options = [*PYTEST_OPTIONS, "-x", "-k", check["keyword"]]
    status = pytest.main([*options, *present], [tests])
    passed = pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED
    return "" if status in passed else tests.by or f"pytest: {status!r}"


if __name__ == "__main__":
    main(sys.argv[1:])
