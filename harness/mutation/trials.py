"""Try mutants, each in a fresh process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.mutation.mutant import ROOT, Mutant, source_of
from harness.mutation.nearest import Check, nearest_checks
from harness.mutation.trial import Outcome
from harness.processes.environment import child_variables
from lockstep.messages.errors import sentence

__all__ = ["LIMITS", "Trials"]

LIMITS: Mapping[str, int] = {"reference": 120, "pytorch": 600}
"""Seconds of processor time after which a mutant counts as killed.

That is about ten times what a survivor takes.
"""

LIMIT = 1200
"""The same of the other backends, which trace graphs."""

WAITING = 10
"""How many times as long a mutant may take that waits for something."""


ALIVE = Outcome("survived")

MOST = 12
"""How many killers of a module are tried first."""


class Trials:
    """Tries mutants of one backend, also from several threads.

    What killed other mutants of the module is tried first. A case or test counts as a
    killer only if it passes on the checkout as it is. That is tried once for each, for
    several trials together, because a process imports the framework anew.

    Args:
        backend: whose mutants.
        recorded: lines of earlier runs.
    """

    def __init__(
        self, backend: str, recorded: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self.backend = backend
        self.limit = LIMITS.get(backend, LIMIT)
        self._sound: set[str] = set()
        self._lock = threading.Lock()
        self._killers: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for line in recorded:
            self._remember(line)

    def record(self, mutant: Mutant) -> dict[str, Any]:
        """Try a mutant and return its line, which counts after `require_sound`."""
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
        """Count what killed a mutant of a module."""
        if line["kind"] in ("case", "test"):
            with self._lock:
                self._killers[line["path"]][line["kind"], line["by"]] += 1

    def _checks(self, mutant: Mutant) -> list[Check]:
        """Return the killers of the module's other mutants, then the nearest checks."""
        with self._lock:
            most = self._killers[mutant.path].most_common(MOST)
        killers = [killer for killer, _ in most]
        return [*_named_checks(killers), *nearest_checks(mutant.path)]

    def _outcome(self, mutant: Mutant) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            file = Path(folder) / Path(mutant.path).name
            changed = mutant.edit.applied_to(source_of(mutant.path))
            file.write_text(changed, "utf-8")
            package = (ROOT / mutant.path).parent
            task = {
                "module": mutant.module,
                "file": str(file),
                "package": str(package) if file.name == "__init__.py" else None,
            }
            return self._run(task, self._checks(mutant), Path(folder))

    def require_sound(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Raise an error if what killed mutants fails without them, too."""
        killed = [line for line in lines if line["status"] == "killed"]
        new = {line["by"]: line for line in killed if line["by"] not in self._sound}
        checks = _named_checks((line["kind"], by) for by, line in new.items())
        for line in new.values():
            if line["kind"] not in ("case", "test"):
                checks += nearest_checks(line["path"])
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            task = {"module": None, "known": True}
            without = self._run(task, checks, Path(folder)) if checks else ALIVE
        if without != ALIVE:
            got = f"{without.kind} {without.by} on the code as it is"
            remedy = "correct the code or the test, then go on with the same command"
            text = sentence(f"mutants of {self.backend}", "no failure", got, remedy)
            raise HarnessError(text)
        self._sound |= new.keys()

    def _run(
        self, task: Mapping[str, Any], checks: Sequence[Check], folder: Path
    ) -> Outcome:
        """Run a task in a child process; one that writes no outcome has crashed."""
        content = {
            **task,
            "backend": self.backend,
            "seconds": self.limit,
            "checks": [asdict(check) for check in checks],
        }
        (folder / "task.json").write_text(json.dumps(content), "utf-8")
        try:
            status = _run_child(folder, WAITING * self.limit)
        except subprocess.TimeoutExpired:
            return Outcome("killed", "time", f"more than {WAITING * self.limit} s")
        if os.name == "posix" and status == -signal.SIGXCPU:
            return Outcome("killed", "time", f"more than {self.limit} s of work")
        written = folder / "outcome.json"
        if not written.exists():
            return Outcome("killed", "crash", f"exit status {status}")
        return Outcome(**json.loads(written.read_text("utf-8")))


def _named_checks(killers: Iterable[tuple[str, str]]) -> list[Check]:
    """Return the single cases, then the single tests, of pairs (kind, name)."""
    pairs = list(killers)
    checks = [
        Check(kind, [name for each, name in pairs if each == kind])
        for kind in ("case", "test")
    ]
    return [check for check in checks if check.names]


def _run_child(folder: Path, limit: float) -> int:
    """Run the trial of a folder; it and what it started end with this call."""
    watched = [
        "harness.processes.child",
        str(os.getpid()),
        "harness.mutation.trial",
        str(folder),
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", *watched],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**child_variables(), "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
    )
    try:
        return child.wait(limit)
    finally:
        with contextlib.suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.wait()
