"""Results of the recorded cases in the catalogue: original, strict and default.

``record_quotes`` replays the cases quoted in ``catalogue.toml`` in both modes and
writes ``results/parity/catalogue.json``, which the pages read. The child process of one
backend is ``python -m harness.parity.quotes BACKEND[:MODE]``. It prints one JSON line
per quote.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import HarnessError
from harness.parity import drivers
from harness.parity.cases import FOUND, GOLDEN, Case, read_cases
from harness.parity.catalogue import Quote, entries
from harness.parity.distance import distance
from harness.parity.families import BY_FAMILY
from harness.parity.replay import Replay, replay_states
from harness.processes.children import ROOT, run_lines
from lockstep.errors import sentence
from lockstep.interface import Array
from lockstep.registry import BACKENDS

RECORD = ROOT / "results" / "parity" / "catalogue.json"


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


class RecordedError(Exception):
    """Represents an error of the original. Its text is the name of the class."""


def record_quotes(record: Path = RECORD) -> list[Quoted]:
    """Replay all quoted cases and write the quotes to ``record``, one per line."""
    recorded = (quote for entry in entries() for quote in entry.recorded)
    backends = dict.fromkeys(quote.backend for quote in recorded)
    quotes = [quoted for backend in backends for quoted in quotes_of(backend)]
    order = [entry.anchor for entry in entries()]
    quotes.sort(key=lambda quoted: order.index(quoted.anchor))
    lines = ",\n".join(json.dumps(asdict(q), ensure_ascii=False) for q in quotes)
    record.write_text(f"[\n{lines}\n]\n", "utf-8")
    return quotes


def quotes_of(backend: str) -> list[Quoted]:
    """Replay the quotes of one BACKEND[:MODE] in a child process."""
    lines: list[str] = []
    status, errors = run_lines("harness.parity.quotes", [backend], "", lines.append)
    if status != 0:
        raise HarnessError(f"catalogue: {backend}: {errors.strip().splitlines()[-1]}")
    return [Quoted(**json.loads(line)) for line in lines]


def quote(anchor: str, selection: Quote, case: Case) -> Quoted:
    """Replay a case in both modes and quote the results and the recording.

    Where the backend has no strict, the reference's is quoted.
    """
    backend, _, mode = selection.backend.partition(":")
    recorded = _recorded(case)
    original = backend if BACKENDS[backend].has_strict else "reference"
    with closing(drivers.load(original, mode or None)) as driver:
        strict = replay_states(case, driver)
        alike = driver.expects(case.expected.get("raises", ""))
    with closing(drivers.load(backend, mode or None, strict=False)) as driver:
        default = replay_states(case, driver)
    replays = (recorded, strict, default)
    values = [_value(replay, selection) for replay in replays]
    _check_quantity(selection, recorded, values)
    index = _apart(values) if selection.index is None else tuple(selection.index)
    texts = [_text(*both, index) for both in zip(replays, values, strict=True)]
    if recorded[1] is not None and isinstance(strict[1], alike):
        # A subclass of the recorded class, or the backend's equivalent.
        texts[1] = texts[0]
    place = _place(case, selection, len(recorded[0]), index)
    fields = (
        selection.case,
        selection.backend,
        selection.quantity,
        place,
        *texts,
        selection.note,
    )
    return Quoted(anchor, *fields)


def _recorded(case: Case) -> Replay:
    if "raises" in case.expected:
        return [], RecordedError(case.expected["raises"])
    return [dict(state) for state in BY_FAMILY[case.family].expectations(case)], None


def _value(replay: Replay, selection: Quote) -> Array | None:
    """Return the quoted value, or None if the replay did not produce it."""
    states = replay[0]
    if not selection.quantity or len(states) < selection.step:
        return None
    return states[selection.step - 1].get(selection.quantity)


def _check_quantity(
    selection: Quote, recorded: Replay, values: Sequence[Array | None]
) -> None:
    """Raise if the quoted quantity does not exist, or is missing in the recording."""
    missing = values[0] is None if recorded[1] is None else values[2] is None
    if selection.quantity and missing:
        subject = f"catalogue.toml: {selection.case}"
        got = f"{selection.quantity!r} in step {selection.step}"
        remedy = "see what there is with parity --case ID --explain"
        raise HarnessError(sentence(subject, "a quantity of the case", got, remedy))


def _apart(values: Sequence[Array | None]) -> tuple[int, ...] | None:
    """Return where the modes differ most in an array too large to be quoted."""
    _, strict, default = values
    shown = [value for value in values if value is not None]
    if not shown or np.size(shown[0]) <= 3:
        return None
    if strict is None or default is None or strict.shape != default.shape:
        return (0,) * np.ndim(shown[0])
    return distance(default, strict).where


def _text(replay: Replay, value: Array | None, index: tuple[int, ...] | None) -> str:
    """Return a replay's result as text: a value, an error, or no error."""
    if value is not None:
        return _number(value if index is None else value[index])
    if isinstance(replay[1], RecordedError):
        return f"raises {replay[1]}"
    return "no error" if replay[1] is None else f"raises {_builtin(type(replay[1]))}"


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


def _builtin(error: type[BaseException]) -> str:
    """Return the first base class of an error that is not ours."""
    foreign = (c for c in error.__mro__ if not c.__module__.startswith("lockstep"))
    return next(foreign).__name__


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


def main(backend: str, lines: Iterable[tuple[str, Quote]]) -> None:
    """Print the quotes of one BACKEND[:MODE]."""
    recorded = [*read_cases(GOLDEN), *read_cases(FOUND)]
    cases = {case.id: case for case in recorded}
    for anchor, selection in lines:
        if selection.backend == backend:
            quoted = quote(anchor, selection, cases[selection.case])
            print(json.dumps(asdict(quoted)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [(e.anchor, q) for e in entries() for q in e.recorded])
