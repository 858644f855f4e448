"""Lines that break the promise of a center are noticed, and others are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.ray.tests.history import History
from lockstep.ray.tests.record import Line, Record

EVERY = 2


START: Line = {"what": "start"}


def begin(*weights: int) -> Line:
    return {"what": "begin", "rounds": sum(weights), "weights": weights}


def push(worker: str, sequence: int, *weights: int, ack: Any = None) -> list[Line]:
    """Return the lines of a push of worker a, b or c, and of what it got."""
    who = {"push": [worker, sequence], "slot": "abc".index(worker)}
    state = {"rounds": sum(weights), "weights": weights}
    reply = ack or weights
    got = {"rounds": sum(reply), "weights": reply}
    return [
        {"what": "call", **who},
        {"what": "done", **state},
        {"what": "ack", **who, **got},
    ]


FIRST = [START, begin(0, 0, 0), *push("a", 1, 1, 0, 0), *push("b", 1, 1, 1, 0)]
IN_A_CALL = push("c", 1, 1, 1, 1)[:1]

KEPT = {
    "no kill": FIRST,
    "a round is lost": [*FIRST, begin(1, 0, 0), *push("b", 2, 1, 1, 0)],
    "the call before the kill is in": [*FIRST, *IN_A_CALL, begin(1, 1, 1)],
    "the call before the kill is out": [*FIRST, *IN_A_CALL, begin(1, 1, 0)],
    "it comes again too early": [
        *(*FIRST, *IN_A_CALL, START, *push("a", 2, 9, 9, 9)[:1]),
        *(begin(1, 1, 1), *push("a", 2, 2, 1, 1)),
    ],
    "it came again": [*FIRST, *IN_A_CALL, begin(1, 1, 1), *push("c", 1, 1, 1, 1)],
    "it is lost and came again": [*FIRST, begin(1, 0, 0), *push("b", 1, 1, 1, 0)],
}

BROKEN = {
    "more rounds are lost": [*FIRST, *push("a", 2, 2, 1, 0), begin(0, 0, 0)],
    "a state that never was": [*FIRST, begin(0, 1, 0)],
    "more than it had": [*FIRST, begin(1, 1, 1)],
    "applied twice": [*FIRST, *push("b", 1, 1, 2, 0)],
    "applied twice after a kill": [
        *(*FIRST, *IN_A_CALL, begin(1, 1, 1)),
        *push("c", 1, 1, 1, 2),
    ],
    "not applied": [*FIRST, *push("c", 1, 1, 1, 0)],
    "applied to another element": [*FIRST, *push("c", 1, 1, 2, 0)],
    "a reply of another state": [*FIRST, *push("c", 1, 1, 1, 1, ack=(1, 1, 0))],
    "another end": [*FIRST, {**begin(1, 0, 0), "what": "end"}],
}


@pytest.mark.parametrize("kept", KEPT)
def test_what_is_promised_passes(kept: str) -> None:
    history = History(EVERY).read(KEPT[kept])
    assert history.repeated == (kept == "it came again")
    assert history.losses == {"no kill": []}.get(kept, [int("lost" in kept)])


@pytest.mark.parametrize("broken", BROKEN)
def test_what_breaks_the_promise_fails(broken: str) -> None:
    with pytest.raises(AssertionError):
        History(EVERY).read(BROKEN[broken])


def test_a_line_of_which_a_half_is_there_is_read_later(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.write("start", node="a")
    whole = record.path.read_text()
    record.path.write_text(whole + whole[:9])
    lines = record.lines()
    assert [next(lines)["what"], next(lines), next(lines)] == ["start", None, None]
    with record.path.open("a") as file:
        file.write(whole[9:])
    assert [next(lines)["node"], next(lines)] == ["a", None]
