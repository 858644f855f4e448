"""The child process of a parity run: one backend, one mode, many cases.

``python -m harness.parity.worker BACKEND MODE GOLDEN DEVICE [--explain] [--default]``
reads case ids from standard input, one per line, and writes one JSON row per line to
standard output. With ``--default``, a row compares the default with strict.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

from harness.parity import drivers
from harness.parity.agreement import agree
from harness.parity.cases import Case, read_cases
from harness.parity.drivers.protocol import Driver
from harness.parity.replay import compare, element, replay
from harness.processes.child import unsearched

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Replay the cases named on standard input, in their order."""
    backend, mode, golden, device = arguments[:4]
    cases = {case.id: case for case in read_cases(Path(golden))}
    # A new driver for every replay, so that no state is shared.
    make_driver = partial(drivers.load, backend, mode, device=device)
    with unsearched():
        make_driver().close()
    for identifier in filter(None, sys.stdin.read().split("\n")):
        case = cases[identifier]
        if "--default" in arguments:
            row = agree(case, make_driver).as_json()
        else:
            with closing(make_driver()) as driver:
                row = replay(case, driver).as_json()
        if "--explain" in arguments:
            with closing(make_driver()) as driver:
                row["explanation"] = explain(case, driver)
        print(json.dumps(row), flush=True)


def explain(case: Case, driver: Driver) -> list[dict[str, object]]:
    """Return every compared quantity at its worst element, with hexadecimal values."""
    if "raises" in case.expected:
        return []
    return [
        {
            "step": step,
            "quantity": quantity,
            "index": list(distance.where),
            "got": element(got, distance.where),
            "expected": element(expected, distance.where),
            "ulp": str(distance.ulp),
            "raw": str(distance.raw),
        }
        for step, quantity, got, expected, distance, _ in compare(case, driver)
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
