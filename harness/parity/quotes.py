"""What the recorded cases say of the catalogue: the original, strict and the default.

``record_quotes`` replays the cases that ``catalogue.toml`` quotes in both modes and
writes ``results/parity/catalogue.json``, which the pages read. The child process of one
host is ``python -m harness.parity.quotes HOST``; it prints a JSON line a quote.
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
from harness.parity.agreement import Replay, replay_states
from harness.parity.cases import FOUND, GOLDEN, Case, read_cases
from harness.parity.catalogue import Quote, entries
from harness.parity.distance import distance
from harness.parity.families import BY_FAMILY
from harness.processes import ROOT, run_lines
from lockstep.interface import Array
from lockstep.messages.errors import sentence

__all__ = ["RECORD", "Quoted", "quote", "quotes_of", "record_quotes"]

RECORD = ROOT / "results" / "parity" / "catalogue.json"


@dataclass(frozen=True)
class Quoted:
    """What a recorded case says of an entry: the original and both modes, in words."""

    anchor: str
    case: str
    host: str
    quantity: str
    place: str
    recorded: str
    strict: str
    default: str
    note: str = ""


class RecordedError(Exception):
    """Stands for an error of the original; its text is the name of the class."""


def record_quotes(record: Path = RECORD) -> list[Quoted]:
    """Replay everything that is quoted and write it to ``record``, a line a quote."""
    hosts = dict.fromkeys(quote.host for entry in entries() for quote in entry.recorded)
    found = [quoted for host in hosts for quoted in quotes_of(host)]
    order = [entry.anchor for entry in entries()]
    found.sort(key=lambda quoted: order.index(quoted.anchor))
    lines = ",\n".join(json.dumps(asdict(q), ensure_ascii=False) for q in found)
    record.write_text(f"[\n{lines}\n]\n", "utf-8")
    return found


def quotes_of(host: str) -> list[Quoted]:
    """Replay what is quoted of one host, in a process of its own: modes differ."""
    lines: list[str] = []
    status, errors = run_lines("harness.parity.quotes", [host], "", lines.append)
    if status != 0:
        raise HarnessError(f"catalogue: {host}: {errors.strip().splitlines()[-1]}")
    return [Quoted(**json.loads(line)) for line in lines]


def quote(anchor: str, wanted: Quote, case: Case) -> Quoted:
    """Replay a case in both modes and quote them beside the recording."""
    backend, _, mode = wanted.host.partition(":")
    recorded = _recorded(case)
    with closing(drivers.load(backend, mode or None)) as driver:
        strict = replay_states(case, driver)
        alike = driver.expects(case.expected.get("raises", ""))
    with closing(drivers.load(backend, mode or None, strict=False)) as driver:
        default = replay_states(case, driver)
    replays = (recorded, strict, default)
    values = [_value(replay, wanted) for replay in replays]
    _check_found(wanted, recorded, values)
    index = _apart(values) if wanted.index is None else tuple(wanted.index)
    told = [_told(*both, index) for both in zip(replays, values, strict=True)]
    if recorded[1] is not None and isinstance(strict[1], alike):
        # A subclass, or the host's counterpart, of what was recorded.
        told[1] = told[0]
    place = _place(case, wanted, len(recorded[0]), index)
    fields = (wanted.case, wanted.host, wanted.quantity, place, *told, wanted.note)
    return Quoted(anchor, *fields)


def _recorded(case: Case) -> Replay:
    if "raises" in case.expected:
        return [], RecordedError(case.expected["raises"])
    return [dict(state) for state in BY_FAMILY[case.family].expectations(case)], None


def _value(replay: Replay, wanted: Quote) -> Array | None:
    """Return the quoted value; None if it was not reached, or is not there."""
    states = replay[0]
    if not wanted.quantity or len(states) < wanted.step:
        return None
    return states[wanted.step - 1].get(wanted.quantity)


def _check_found(
    wanted: Quote, recorded: Replay, values: Sequence[Array | None]
) -> None:
    """Raise if nothing has the quoted quantity, or the recording should and has not."""
    missing = values[0] is None if recorded[1] is None else values[2] is None
    if wanted.quantity and missing:
        subject = f"catalogue.toml: {wanted.case}"
        got = f"{wanted.quantity!r} in step {wanted.step}"
        remedy = "see what there is with parity --case ID --explain"
        raise HarnessError(sentence(subject, "a quantity of the case", got, remedy))


def _apart(values: Sequence[Array | None]) -> tuple[int, ...] | None:
    """Return where the modes are furthest apart in an array too large to be quoted."""
    _, strict, default = values
    shown = [value for value in values if value is not None]
    if not shown or np.size(shown[0]) <= 3:
        return None
    if strict is None or default is None or strict.shape != default.shape:
        return (0,) * np.ndim(shown[0])
    return distance(default, strict).where


def _told(replay: Replay, value: Array | None, index: tuple[int, ...] | None) -> str:
    """Return the result of a replay as text: a value, an error, or neither."""
    if value is not None:
        return _number(value if index is None else value[index])
    if isinstance(replay[1], RecordedError):
        return f"raises {replay[1]}"
    return "no error" if replay[1] is None else f"raises {_builtin(type(replay[1]))}"


def _number(value: Any) -> str:
    """Write a scalar or a small array in the shortest decimals of its dtype."""
    array = np.asarray(value)
    if array.ndim:
        return f"[{', '.join(_number(entry) for entry in array)}]"
    scalar = array[()]
    if array.dtype.kind != "f" or not np.isfinite(scalar):
        return str(scalar)
    whole = float(scalar).is_integer() and abs(float(scalar)) < 1e7
    return str(int(scalar)) if whole else str(scalar)


def _builtin(error: type[BaseException]) -> str:
    """Return the class as which an error of ours is caught without our names."""
    foreign = (c for c in error.__mro__ if not c.__module__.startswith("lockstep"))
    return next(foreign).__name__


def _place(
    case: Case, wanted: Quote, states: int, index: tuple[int, ...] | None
) -> str:
    """Return the place of a value: which element, and after or at which step."""
    if not wanted.quantity:
        return ""
    parts = [] if index is None else [f"element {list(index)}"]
    if "global_steps" in case.inputs:
        parts.append(f"at step {case.inputs['global_steps'][wanted.step - 1]}")
    elif states > 1:
        parts.append(f"after step {wanted.step}")
    return ", ".join(parts)


def main(host: str, lines: Iterable[tuple[str, Quote]]) -> None:
    """Print the quotes of the backend ``host``."""
    recorded = [*read_cases(GOLDEN), *read_cases(FOUND)]
    cases = {case.id: case for case in recorded}
    for anchor, wanted in lines:
        if wanted.host == host:
            quoted = quote(anchor, wanted, cases[wanted.case])
            print(json.dumps(asdict(quoted)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [(e.anchor, q) for e in entries() for q in e.recorded])
