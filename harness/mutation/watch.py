"""The child process of a watch: run checks, record which functions each enters.

``python -m harness.mutation.watch FOLDER`` reads ``task.json`` in the folder. A unit is
a test file, or an execution mode with all its cases. For each unit it writes the file
that the task names. An interruption loses only the unit that was running.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.mutation import tracer
from harness.mutation.finder import reach_children
from harness.mutation.tracer import Tracer
from harness.mutation.trial import PYTEST_OPTIONS, cases_of


class Watch:
    """Runs checks one after the other and records the functions that each enters.

    Args:
        folder: of this watch, for the processes that a check starts.
        home: the folder of the backend.
    """

    def __init__(self, folder: Path, home: str) -> None:
        self.tracer = Tracer(home)
        self.check, self.file = folder / "check", folder / "entered"
        (folder / "home").write_text(home, "utf-8")
        self.entered: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}
        self.shared: set[str] = set()
        self._start = 0.0

    def begin(self, name: str) -> None:
        """Clear the functions that were entered before this check."""
        self.tracer.entered.clear()
        self.file.write_text("", "utf-8")
        self.check.write_text(name, "utf-8")
        self._start = time.perf_counter()

    def end(self, name: str) -> None:
        """Record the functions that this check entered, in all processes."""
        self.seconds[name] = round(time.perf_counter() - self._start, 3)
        others = self.file.read_text("utf-8").splitlines()
        self.entered[name] = sorted({*self.tracer.entered, *others})

    def content(self) -> dict[str, Any]:
        """Return the records since the last call as a JSON object.

        Functions entered for the whole file are added to each of its tests.
        """
        entered = {
            name: sorted({*functions, *self.shared})
            for name, functions in self.entered.items()
        }
        content = {"seconds": self.seconds, "entered": entered}
        self.seconds, self.entered = {}, {}
        self.shared.clear()
        return content


class Plugin:
    """A pytest plugin that records each test that passes."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.passed = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Start a test."""
        self.passed = False
        self.watch.begin(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record whether the test itself passed."""
        if report.when == "call":
            self.passed = report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """End a test."""
        if self.passed:
            self.watch.end(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Attribute what a fixture with a wider scope enters to every test."""
        entered = self.watch.tracer.entered
        before = set(entered)
        entered.clear()
        value = yield
        if fixturedef.scope != "function":
            self.watch.shared |= entered
        entered |= before
        return value


def main(arguments: Sequence[str]) -> None:
    """Trace the units of a folder's task."""
    folder = Path(arguments[0])
    task = json.loads((folder / "task.json").read_text("utf-8"))
    watch = Watch(folder, task["home"] + os.sep)
    reach_children(folder, tracer.__file__)
    watch.tracer.start()
    for unit in task["units"]:
        if unit["mode"]:
            _watch_cases(watch, task["backend"], unit["name"])
        else:
            _watch_tests(watch, unit["name"], unit["keyword"])
        target = Path(unit["file"])
        part = target.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(watch.content()), "utf-8")
        part.replace(target)


def _watch_cases(watch: Watch, backend: str, mode: str) -> None:
    """Replay the cases of a mode."""
    from harness.parity.cases import FAMILIES
    from harness.parity.replay import judge

    for each, case in cases_of(backend, FAMILIES):
        if each == mode:
            name = f"{mode} {case.id}"
            watch.begin(name)
            if judge(case, backend, mode).status == "passed":
                watch.end(name)


def _watch_tests(watch: Watch, file: str, keyword: str) -> None:
    """Run the tests of a file that have the keyword in their names."""
    pytest.main([*PYTEST_OPTIONS, "-k", keyword, file], [Plugin(watch)])


if __name__ == "__main__":
    main(sys.argv[1:])
