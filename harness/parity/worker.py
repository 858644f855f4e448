"""The child process of a parity run: one backend, one mode, many cases.

``python -m harness.parity.worker BACKEND MODE GOLDEN DEVICE [--explain] [--default]``
reads case ids from standard input, one per line, and writes one JSON row per line to
standard output. With ``--default``, a row compares the default with strict.
A backend without strict is judged on its default.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

from harness.parity import drivers
from harness.parity.cases import Case, read_cases
from harness.parity.distance import State, compare, divergence
from harness.parity.drivers.protocol import Driver
from harness.parity.replay import (
    WITHOUT_STRICT,
    agree,
    difference_of,
    documented,
    judge,
    recorded,
    replay_states,
)
from harness.parity.row import Row
from harness.processes.child import unsearched

OPTIONAL = ("matplotlib", "pandas", "sklearn")
"""What Keras imports where it is installed: a quarter of the start of TensorFlow."""


def main(arguments: list[str]) -> None:
    """Replay the cases named on standard input, in their order."""
    backend, mode, golden, device = arguments[:4]
    cases = {case.id: case for case in read_cases(Path(golden))}
    # A new driver for every replay, so that no state is shared.
    strict = backend not in WITHOUT_STRICT
    make_driver = partial(drivers.load, backend, mode, device=device)
    sys.modules.update(dict.fromkeys(OPTIONAL))  # type: ignore[arg-type]
    with unsearched():
        make_driver(strict).close()
    for identifier in filter(None, sys.stdin.read().split("\n")):
        case = cases[identifier]
        if "--default" in arguments:
            row = agree(case, make_driver)
        else:
            row = judge(case, backend, mode, device)
        content = row.as_json()
        if "--explain" in arguments:
            with closing(make_driver(strict)) as driver:
                content["explanation"] = explain(case, driver, row)
        print(json.dumps(content), flush=True)


def explain(case: Case, driver: Driver, row: Row) -> list[dict[str, object]]:
    """Return every compared quantity at its worst element, with hexadecimal values."""
    if "raises" in case.expected and row.against == "recording":
        return []
    expected: Iterable[State] = recorded(case)
    entry = difference_of(case, driver.backend)
    if entry is not None and row.against != "recording":
        expected = documented(case, entry)[0]
    return [
        {
            **asdict(divergence(comparison)),
            "ulp": str(comparison.distance.ulp),
            "raw": str(comparison.distance.raw),
        }
        for comparison in compare(case, replay_states(case, driver)[0], expected)
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
