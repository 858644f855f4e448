"""A pytest plugin: tests marked soak resume where an interrupted run stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest

__all__ = ["LongTests", "state_of"]

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("impls", "harness", "experiments")
NAME = "long_tests"


class LongTests:
    """Records each long test that passed, and skips it in the next run.

    After a complete run without a failure, all tests run again. They also run again
    after a change of any source.

    Args:
        folder: where the file of passed tests is written.
        root: the checkout whose sources are compared.

    Attributes:
        done: the tests that are skipped.
    """

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.path = folder / "passed.txt"
        self.root = root
        self.state = ""
        self.done: list[str] = []
        self._chosen: set[str] = set()
        self._returned: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect the tests that passed; run all if nothing else was selected."""
        long = [item for item in items if item.get_closest_marker("soak")]
        self._chosen = {item.nodeid for item in long}
        if not long:
            return
        self.state = state_of(self.root)
        passed = self._passed()
        done = [item for item in long if item.nodeid in passed]
        if done and len(done) < len(items):
            self.done = [item.nodeid for item in done]
            items[:] = [item for item in items if item not in done]
            config.hook.pytest_deselected(items=done)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Return a line with the number of skipped tests."""
        if not self.done:
            return []
        return [f"{len(self.done)} passed before this run was ended ({self.path})"]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a long test that passed, including its teardown."""
        if report.nodeid not in self._chosen or not report.passed:
            return
        if report.when == "call":
            self._returned.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid in self._returned:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(f"{self.state} {report.nodeid}\n")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Forget the recorded tests after a complete run without a failure."""
        if exitstatus == pytest.ExitCode.OK and self._chosen:
            rest = sorted(self._passed() - self._chosen)
            self.path.unlink(missing_ok=True)
            if rest:
                lines = "".join(f"{self.state} {test}\n" for test in rest)
                self.path.write_text(lines)

    def _passed(self) -> set[str]:
        """Return the tests that passed with the current sources."""
        if not self.path.exists():
            return set()
        lines = (line.split(" ", 1) for line in self.path.read_text().splitlines())
        return {line[1] for line in lines if line[0] == self.state and len(line) == 2}


def state_of(root: Path) -> str:
    """Return a hash of all sources of a checkout, as sixteen hexadecimal digits."""
    state = hashlib.sha256()
    for path in sources(root):
        state.update(f"{path.relative_to(root).as_posix()}\n".encode())
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()[:16]


def sources(root: Path) -> Iterable[Path]:
    """Return the files of the code folders, without compiled ones."""
    files = (path for folder in FOLDERS for path in (root / folder).rglob("*"))
    return sorted(p for p in files if p.is_file() and "__pycache__" not in p.parts)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the folder that long tests resume from."""
    text = "where tests marked soak keep what they have done; default: build/soak"
    folder = ROOT / "build" / "soak"
    parser.addoption("--soak", metavar="FOLDER", default=folder, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin, unless this process is one of several test workers."""
    if not (hasattr(config, "workerinput") or config.getoption("collectonly")):
        folder = Path(config.getoption("--soak"))
        config.pluginmanager.register(LongTests(folder), NAME)
