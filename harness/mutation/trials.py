"""Try mutants, each in its own fresh process."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.mutation.children import run_child
from harness.mutation.choice import ENOUGH, Choice, Killer, choose, named_checks
from harness.mutation.mutant import ROOT, Mutant, source_of
from harness.mutation.nearest import Check
from harness.mutation.reach import Reach
from harness.mutation.trial import Outcome
from lockstep.errors import sentence

LIMITS: Mapping[str, int] = {"reference": 120, "pytorch": 600}
"""Limit of processor time in seconds. A mutant that exceeds it is killed.

It is about ten times the time of a survivor for which all nearest checks are run.
"""

LIMIT = 1200
"""The limit of the other backends, which trace graphs."""

BESIDE = 60
"""Seconds of processor time that every check may take in addition.

Importing a framework and collecting tests takes less than ten.
"""

LONGER = 10
"""Factor between the limit of a check and its time on the unchanged code."""

WAITING = 3
"""Factor between the limits of elapsed time and processor time, for waiting mutants."""


ALIVE = Outcome("survived")

MOST = 12
"""Number of a module's killers that are tried first."""


class Trials:
    """Tries mutants of one backend. It may be used from several threads.

    Checks that killed other mutants of the module are tried first. A case or test is a
    valid killer only if it passes on the unchanged checkout. This is checked once for
    each killer, together for several trials, because each process imports the framework
    again.

    Args:
        backend: whose mutants are tried.
        recorded: lines of earlier runs.
        reach: which cases and tests enter which function.
    """

    def __init__(
        self,
        backend: str,
        recorded: Iterable[Mapping[str, Any]] = (),
        reach: Reach | None = None,
    ) -> None:
        self.backend = backend
        self.limit = LIMITS.get(backend, LIMIT)
        self.reach = Reach(backend) if reach is None else reach
        self._sound: set[Killer] = set()
        self._lock = threading.Lock()
        self._ended: dict[str, Sequence[Check]] = {}
        self._killers: dict[str, Counter[Killer]] = defaultdict(Counter)
        self._alive: set[str] = set()
        for line in recorded:
            self._remember(line)

    def record(self, mutant: Mutant) -> dict[str, Any]:
        """Try a mutant and return its line, which is valid after `require_sound`."""
        start = time.perf_counter()
        outcome = self._outcome(mutant)
        seconds = time.perf_counter() - start
        before, after = mutant.edit.lines(source_of(mutant.path))
        line = {
            "id": mutant.id,
            "path": mutant.path,
            "digest": mutant.digest,
            "line": mutant.line,
            "definition": mutant.definition,
            "operator": mutant.operator,
            "before": before,
            "after": after,
            **asdict(outcome),
            "seconds": round(seconds, 2),
        }
        self._remember(line)
        return line

    def _remember(self, line: Mapping[str, Any]) -> None:
        """Count what killed a mutant of a module; remember survivors."""
        if line["status"] == "survived":
            self._alive.add(line["id"])
        if line["kind"] in ("case", "test"):
            with self._lock:
                self._killers[line["path"]][line["kind"], line["by"]] += 1

    def _choice(self, mutant: Mutant) -> Choice:
        """Return the checks for a mutant: all of them if it survived before."""
        with self._lock:
            most = self._killers[mutant.path].most_common(MOST)
        enough = math.inf if mutant.id in self._alive else ENOUGH
        return choose(mutant, self.reach, [killer for killer, _ in most], enough)

    def _outcome(self, mutant: Mutant) -> Outcome:
        choice = self._choice(mutant)
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            file = Path(folder) / Path(mutant.path).name
            changed = mutant.edit.applied_to(source_of(mutant.path))
            file.write_text(changed, "utf-8")
            package = (ROOT / mutant.path).parent
            task = {
                "module": mutant.module,
                "file": str(file),
                "package": str(package) if file.name == "__init__.py" else None,
                "seconds": self._limit(choice),
            }
            outcome = self._run(task, choice.checks, Path(folder))
            if outcome.kind in ("time", "crash"):
                self._ended[mutant.id] = _running(Path(folder))
            return outcome

    def _limit(self, choice: Choice) -> int:
        """Return the limit of processor time for a choice, in seconds."""
        if choice.seconds is None:
            return self.limit
        return min(self.limit, BESIDE + round(LONGER * choice.seconds))

    def require_sound(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Raise HarnessError if a killer also fails on the unchanged code."""
        killed = [line for line in lines if line["status"] == "killed"]
        new = {(line["kind"], line["by"]) for line in killed} - self._sound
        checks = named_checks(sorted(new))
        for line in killed:
            checks += self._ended.pop(line["id"], [])
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            task = {"module": None, "seconds": self.limit}
            without = self._run(task, checks, Path(folder)) if checks else ALIVE
        if without != ALIVE:
            got = f"{without.kind} {without.by} on the code as it is"
            remedy = "correct the code or the test, then go on with the same command"
            text = sentence(f"mutants of {self.backend}", "no failure", got, remedy)
            raise HarnessError(text)
        self._sound |= new

    def _run(
        self, task: Mapping[str, Any], checks: Sequence[Check], folder: Path
    ) -> Outcome:
        """Run a task in a child process. If it writes no outcome, it has crashed."""
        content = {
            **task,
            "backend": self.backend,
            "checks": [asdict(check) for check in checks],
            "allowed": {
                name: BESIDE + round(LONGER * self.reach.seconds[name])
                for check in checks
                for name in check.names
                if name in self.reach.seconds
            },
        }
        (folder / "task.json").write_text(json.dumps(content), "utf-8")
        limit = task["seconds"]
        try:
            status = run_child("harness.mutation.trial", folder, WAITING * limit)
        except subprocess.TimeoutExpired:
            return Outcome("killed", "time", f"more than {WAITING * limit} s")
        if os.name == "posix" and status == -signal.SIGXCPU:
            return Outcome("killed", "time", "more work than is allowed")
        written = folder / "outcome.json"
        if not written.exists():
            return Outcome("killed", "crash", f"exit status {status}")
        return Outcome(**json.loads(written.read_text("utf-8")))


def _running(folder: Path) -> list[Check]:
    """Return the check during which a trial ended. It is empty during the import."""
    file = folder / "check"
    kind, name = json.loads(file.read_text("utf-8")) if file.exists() else ("", "")
    return [Check(kind, [name])] if name else []
