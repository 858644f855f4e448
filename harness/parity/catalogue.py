"""The catalogue of differences: every quirk of the originals and how we treat it.

``catalogue.toml`` lists quirks in which strict and the default differ, or in which both
follow the original although one might not expect it. Each entry has a section on
docs/differences.md, a script, and quotes from recorded cases: the results of the
original, of strict and of the default.

``record_quotes`` replays the quoted cases and writes ``results/parity/catalogue.json``,
which the pages read. The child process of one backend is ``python -m
harness.parity.catalogue BACKEND[:MODE]``. It prints one JSON line per quote.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import HarnessError
from harness.parity import drivers
from harness.parity.cases import FOUND, GOLDEN, Case, read_cases
from harness.parity.distance import State
from harness.parity.replay import recorded, replay_states
from harness.processes.children import ROOT, run_lines
from lockstep.interface import Array
from lockstep.registry import BACKENDS

RECORD = ROOT / "results" / "parity" / "catalogue.json"

MARKS = {
    "kept": "the default does what the original did",
    "fixed": "the default does what the original should have done",
    "refused": "the default raises an error at once",
    "own": "Keras 3 follows a rule of its own",
    "race": "the original gave one of several results, and ours is always the same",
}
"""What the default does instead of the original's behaviour."""


@dataclass(frozen=True)
class Quote:
    """A quoted quantity (``a/b/c``) of a recorded case after a step, counted from 1.

    Without ``quantity``, only errors are quoted; without ``index``, the whole array.
    ``backend`` is BACKEND or BACKEND:MODE.
    """

    case: str
    quantity: str = ""
    step: int = 1
    index: Sequence[int] | None = None
    backend: str = "reference"
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """One section of the page, with ``recorded`` quotes or the reason for none."""

    anchor: str
    does: Sequence[str]
    recorded: Sequence[Quote] = ()
    not_recorded: str = ""


@dataclass(frozen=True)
class Quoted:
    """The results of a recorded case as text: of the original and of both modes."""

    anchor: str
    case: str
    backend: str
    quantity: str
    place: str
    recorded: str
    strict: str
    default: str
    note: str = ""


@cache
def entries() -> Sequence[Entry]:
    """Read the entries of all rows of ``catalogue.toml``."""
    path = Path(__file__).parent / "catalogue.toml"
    rows = tomllib.loads(path.read_text("utf-8"))["row"]
    return [_entry(**content) for row in rows for content in row["entry"]]


def _entry(recorded: Sequence[Mapping[str, Any]] = (), **content: Any) -> Entry:
    return Entry(**content, recorded=[Quote(**quote) for quote in recorded])


def record_quotes(record: Path = RECORD) -> list[Quoted]:
    """Replay all quoted cases and write the quotes to ``record``, one per line."""
    backends = dict.fromkeys(q.backend for entry in entries() for q in entry.recorded)
    quotes = [quoted for backend in backends for quoted in quotes_of(backend)]
    order = [entry.anchor for entry in entries()]
    quotes.sort(key=lambda quoted: order.index(quoted.anchor))
    lines = ",\n".join(json.dumps(asdict(q), ensure_ascii=False) for q in quotes)
    record.write_text(f"[\n{lines}\n]\n", "utf-8")
    return quotes


def quotes_of(backend: str) -> list[Quoted]:
    """Replay the quotes of one BACKEND[:MODE] in a child process."""
    lines: list[str] = []
    status, errors = run_lines("harness.parity.catalogue", [backend], "", lines.append)
    if status != 0:
        raise HarnessError(f"catalogue: {backend}: {errors.strip().splitlines()[-1]}")
    return [Quoted(**json.loads(line)) for line in lines]


def quote(anchor: str, selection: Quote, case: Case) -> Quoted:
    """Replay a case in both modes and quote the results and the recording.

    Where the backend has no strict, the reference's is quoted.
    """
    backend, _, mode = selection.backend.partition(":")
    raises = case.expected.get("raises", "")
    original = backend if BACKENDS[backend].has_strict else "reference"
    with closing(drivers.load(original, mode or None)) as driver:
        strict, strict_error = replay_states(case, driver)
        alike = driver.expects(raises)
    with closing(drivers.load(backend, mode or None, strict=False)) as driver:
        default, default_error = replay_states(case, driver)
    states = [] if raises else [dict(state) for state in recorded(case)]
    values = [_value(replayed, selection) for replayed in (states, strict, default)]
    if selection.quantity and values[2 if raises else 0] is None:
        raise HarnessError(
            f"catalogue.toml: {selection.case}: expected a quantity of the case, got "
            f"{selection.quantity!r} in step {selection.step}; see what there is with "
            "parity --case ID --explain."
        )
    index = None if selection.index is None else tuple(selection.index)
    # A subclass of the recorded class, or the backend's equivalent, has its name.
    same = raises and isinstance(strict_error, alike)
    errors = (raises, raises if same else _name(strict_error), _name(default_error))
    texts = (_text(*both, index) for both in zip(values, errors, strict=True))
    shown = dict(zip(("recorded", "strict", "default"), texts, strict=True))
    place = _place(case, selection, len(states), index)
    fields = (selection.case, selection.backend, selection.quantity, place)
    return Quoted(anchor, *fields, **shown, note=selection.note)


def _value(states: Sequence[State], selection: Quote) -> Array | None:
    """Return the quoted value, or None if the replay did not produce it."""
    if not selection.quantity or len(states) < selection.step:
        return None
    return states[selection.step - 1].get(selection.quantity)


def _name(error: Exception | None) -> str:
    """Return the name of an error's first class that is not ours."""
    classes = [] if error is None else type(error).__mro__
    foreign = (c for c in classes if not c.__module__.startswith("lockstep"))
    return next((c.__name__ for c in foreign), "")


def _text(value: Array | None, error: str, index: tuple[int, ...] | None) -> str:
    """Return a replay's result as text: a value, an error, or no error."""
    if value is not None:
        return _number(value if index is None else value[index])
    return f"raises {error}" if error else "no error"


def _number(value: Any) -> str:
    """Format a scalar or a small array with the shortest decimals of its dtype."""
    array = np.asarray(value)
    if array.ndim:
        return f"[{', '.join(_number(entry) for entry in array)}]"
    scalar = array[()]
    if array.dtype.kind != "f" or not np.isfinite(scalar):
        return str(scalar)
    whole = float(scalar).is_integer() and abs(float(scalar)) < 1e7
    return str(int(scalar)) if whole else str(scalar)


def _place(
    case: Case, selection: Quote, states: int, index: tuple[int, ...] | None
) -> str:
    """Return the place of a value: its element, and its step."""
    if not selection.quantity:
        return ""
    parts = [] if index is None else [f"element {list(index)}"]
    if "global_steps" in case.inputs:
        parts.append(f"at step {case.inputs['global_steps'][selection.step - 1]}")
    elif states > 1:
        parts.append(f"after step {selection.step}")
    return ", ".join(parts)


def main(backend: str) -> None:
    """Print the quotes of one BACKEND[:MODE]."""
    cases = {c.id: c for folder in (GOLDEN, FOUND) for c in read_cases(folder)}
    for entry in entries():
        for selection in entry.recorded:
            if selection.backend == backend:
                quoted = quote(entry.anchor, selection, cases[selection.case])
                print(json.dumps(asdict(quoted)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
