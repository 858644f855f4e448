"""Which recorded cases and tests enter a function, computed once on the unchanged code.

All cases and tests of a backend run once under a tracer of calls. The results are kept
in ``.cache/mutants/``, one file for each unit: a test file, or the cases of a mode. Its
name is a digest of the backend and the unit, so only changed units run again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.mutation.children import run_child
from harness.mutation.mutant import ROOT, Mutant, source_of
from harness.mutation.nearest import EXAMPLES, SHARED
from harness.parity.cases import FOUND, GOLDEN
from lockstep import registry
from lockstep.errors import sentence

CACHE = ROOT / ".cache" / "mutants"

TOGETHER = 6
"""Number of units that one process traces."""


@dataclass(frozen=True)
class Unit:
    """Checks that are traced together and kept in one file.

    Attributes:
        name: a test file in the checkout, or an execution mode.
        mode: whether it is a mode, of which all cases are traced.
        keyword: run only tests with this in their names; empty means all.
    """

    name: str
    mode: bool = False
    keyword: str = ""


def units_of(backend: str) -> list[Unit]:
    """Return the units of a backend: its tests, the shared tests, and its modes.

    Modes come last, since some change their framework permanently.
    """
    home = _home(backend)
    tests = sorted((home / "tests").rglob("test_*.py"))
    examples = EXAMPLES.split("::", 1)[0]
    return [
        *(Unit(test.relative_to(ROOT).as_posix()) for test in tests),
        *(Unit(test, keyword=backend) for test in SHARED),
        Unit(examples, keyword=f"lockstep.{backend}."),
        *(Unit(mode, mode=True) for mode in registry.find(backend).modes),
    ]


def _home(backend: str) -> Path:
    return ROOT / "impls" / "lockstep" / backend


@dataclass(frozen=True)
class Place:
    """The function around a mutant.

    Attributes:
        function: the outermost function whose body contains it, with the name of
            its class; empty outside of a body.
        head: the function whose decorator or default argument contains it instead.
    """

    function: str = ""
    head: str = ""


def place_of(mutant: Mutant) -> Place:
    """Return the function that contains a mutant."""
    source = source_of(mutant.path)
    line = source.count("\n", 0, mutant.edit.start) + 1
    for name, node in _functions(ast.parse(source), ""):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        if first <= line <= (node.end_lineno or first):
            inside = line >= node.body[0].lineno
            return Place(function=name) if inside else Place(head=name)
    return Place()


def _functions(
    node: ast.Module | ast.ClassDef, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the outermost functions of a module, with the names of their classes."""
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            yield f"{prefix}{child.name}", child


class Reach:
    """The functions that the cases and tests of a backend enter.

    Args:
        backend: its name.
        contents: the traced result of each unit.
    """

    def __init__(
        self, backend: str, contents: Sequence[tuple[Unit, Mapping[str, Any]]] = ()
    ) -> None:
        self.folder = f"impls/lockstep/{backend}/"
        self.seconds: dict[str, float] = {}
        self.kinds: dict[str, str] = {}
        self._entering: dict[str, set[str]] = defaultdict(set)
        for unit, content in contents:
            for name, seconds in content["seconds"].items():
                self.seconds[name] = seconds
                self.kinds[name] = "case" if unit.mode else "test"
                for function in content["entered"][name]:
                    self._entering[function].add(name)

    def entering(self, path: str, place: Place) -> set[str]:
        """Return the cases and tests that enter the function of a place.

        For a place outside of all functions, return those that enter any function of
        the module. A function converted by TensorFlow is known only by its name.
        """
        module = path.removeprefix(self.folder)
        name = place.function or place.head
        if name:
            converted = f":{name.rsplit('.', 1)[-1]}"
            exact = self._entering.get(f"{module}:{name}", set())
            return exact | self._entering.get(converted, set())
        return {
            name
            for function, names in self._entering.items()
            if function.startswith(f"{module}:")
            for name in names
        }


def read_reach(backend: str, jobs: int, report: Callable[[str], None]) -> Reach:
    """Return the reach of all checks. First trace the units that are not known yet."""
    files = _files(backend)
    missing = [unit for unit, file in files.items() if not file.exists()]
    parts = [missing[i : i + TOGETHER] for i in range(0, len(missing), TOGETHER)]
    if parts:
        # Imported here: the environment that draws pages does not have it.
        from joblib import Parallel, delayed

        report(f"watching {len(missing)} files of tests and modes of {backend}")
        done = Parallel(jobs, backend="threading", return_as="generator_unordered")(
            delayed(_watch)(backend, {unit: files[unit] for unit in part})
            for part in parts
        )
        for number, _ in enumerate(done, 1):
            report(f"watched {number} of {len(parts)} parts")
    contents = [
        (unit, json.loads(file.read_text("utf-8"))) for unit, file in files.items()
    ]
    return Reach(backend, contents)


def _files(backend: str) -> dict[Unit, Path]:
    """Return the file that keeps the result of each unit."""
    home = _home(backend)
    common = hashlib.sha256()
    sources = [p for p in sorted(home.rglob("*.py")) if not p.name.startswith("test_")]
    for path in sources:
        common.update(path.read_bytes())
    cases = [
        path for folder in (GOLDEN, FOUND) for path in sorted(folder.rglob("*.json"))
    ]
    files = {}
    for unit in units_of(backend):
        digest = common.copy()
        digest.update(repr(unit).encode())
        for path in cases if unit.mode else [ROOT / unit.name]:
            digest.update(path.read_bytes())
        files[unit] = CACHE / backend / f"{digest.hexdigest()[:16]}.json"
    return files


def _watch(backend: str, files: Mapping[Unit, Path]) -> None:
    """Trace some units in a fresh process."""
    units = [
        {
            "name": unit.name,
            "mode": unit.mode,
            "keyword": unit.keyword,
            "file": str(file),
        }
        for unit, file in files.items()
    ]
    task = {"backend": backend, "home": str(_home(backend)), "units": units}
    (CACHE / backend).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="watch-") as folder:
        Path(folder, "task.json").write_text(json.dumps(task), "utf-8")
        status = run_child("harness.mutation.watch", Path(folder))
    if status or not all(file.exists() for file in files.values()):
        got = f"exit status {status} of {', '.join(unit.name for unit in files)}"
        remedy = "run these tests alone and mend what ends their process"
        text = sentence(f"mutants of {backend}", "a watch of its tests", got, remedy)
        raise HarnessError(text)
