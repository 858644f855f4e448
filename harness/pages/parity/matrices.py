"""The parity report, grouped for the pages."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.parity.cases import FAMILIES
from harness.parity.row import Row
from lockstep.errors import sentence
from lockstep.registry import BACKENDS

TABLES = Path(__file__).resolve().parent.parent.parent / "parity"


@dataclass(frozen=True, order=True)
class BackendMode:
    """A backend in one execution mode; sorts in the order of the registry."""

    order: tuple[int, int, str]
    backend: str
    mode: str

    @property
    def label(self) -> str:
        """The name in tables, with the mode only if the backend has several."""
        known = BACKENDS.get(self.backend)
        one_mode = known is not None and len(known.modes) == 1
        return self.backend if one_mode else f"{self.backend} {self.mode}"


@dataclass(frozen=True)
class Summary:
    """The cases of one family on one backend, in one or more modes."""

    rows: Sequence[Row]

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of rows per status."""
        return Counter(row.status for row in self.rows)

    @property
    def ways(self) -> Counter[str]:
        """The number of passed cases per way in which they are right."""
        return Counter(row.way for row in self.rows if row.status == "passed")

    @property
    def replayed(self) -> int:
        """The number of cases that were replayed and judged."""
        return self.counts["passed"] + self.counts["failed"]

    @property
    def worst(self) -> Row | None:
        """The replayed case with the largest distance; None if none was measured."""
        measured = [row for row in self.rows if row.max_ulp is not None]
        return max(measured, key=lambda row: row.max_ulp or 0, default=None)


@dataclass(frozen=True)
class Report:
    """All rows of a report and the environment it was recorded in."""

    rows: Sequence[Row]
    environment: dict[str, Any]

    @cached_property
    def modes(self) -> list[BackendMode]:
        """The backends and modes that have rows in the report."""
        return sorted({_mode_of(row) for row in self.rows})

    @cached_property
    def families(self) -> list[str]:
        """The families in the report, in the order of ``FAMILIES``."""
        present = {row.family for row in self.rows}
        return [name for name in FAMILIES if name in present]

    def summary(self, family: str, *modes: BackendMode) -> Summary:
        """Return the rows of one family in some modes."""
        return Summary(
            [r for r in self.rows if r.family == family and _mode_of(r) in modes]
        )

    def cases(self, *families: str) -> dict[str, list[Row]]:
        """Return the rows of each case of the given families."""
        rows_by_case: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.family in families:
                rows_by_case.setdefault(row.id, []).append(row)
        return rows_by_case

    def reasons(self, status: str) -> list[tuple[str, str, str, str, int]]:
        """Return (family, kind, backends, reason, number of cases) of a status."""
        groups: dict[tuple[str, str, str], list[Row]] = {}
        for row in self.rows:
            is_explained = row.reason or status != "passed"
            if row.status == status and is_explained:
                key = (row.family, row.kind, row.reason)
                groups.setdefault(key, []).append(row)
        return [
            (family, kind, _labels(rows), reason, len({row.id for row in rows}))
            for (family, kind, reason), rows in groups.items()
        ]


def read_report(folder: Path, name: str = "report") -> Report | None:
    """Read a published report; None if parity has not been recorded yet."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    content = _read_json(path)
    expected = "a list of report rows"
    if not isinstance(content, list):
        raise _damaged(path, expected, f"a {type(content).__name__}")
    try:
        rows = [Row.from_json(entry) for entry in content]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        got = f"{type(error).__name__} ({error})"
        raise _damaged(path, expected, got) from error
    about = path.with_suffix(".environment.json")
    return Report(rows, _read_json(about) if about.exists() else {})


def tolerances(name: str = "tolerance") -> list[dict[str, Any]]:
    """Return a table of tolerances of the parity command; ``rule``: from rules."""
    return list(_read_toml("tolerances.toml")[name])


def capabilities() -> list[dict[str, Any]]:
    """Return the table of features for which a backend has no counterpart."""
    return list(_read_toml("capabilities.toml")["excuse"])


def _mode_of(row: Row) -> BackendMode:
    backends = list(BACKENDS)
    known = BACKENDS.get(row.backend)
    first = backends.index(row.backend) if known else len(backends)
    modes = known.modes if known else ()
    second = modes.index(row.mode) if row.mode in modes else len(modes)
    return BackendMode((first, second, row.backend + row.mode), row.backend, row.mode)


def _labels(rows: Iterable[Row]) -> str:
    return ", ".join(mode.label for mode in sorted({_mode_of(row) for row in rows}))


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, "JSON", f"{type(error).__name__} ({error})") from error


def _damaged(path: Path, expected: str, got: str) -> HarnessError:
    remedy = (
        f"write it anew: nox -s parity -- --all --report results/parity/{path.name}"
    )
    return HarnessError(
        sentence(f"{path.parent.name}/{path.name}", expected, got, remedy)
    )


def _read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads((TABLES / name).read_text("utf-8"))
