"""The child process of a parity run: one backend, one mode, many cases.

``python -m harness.parity.worker BACKEND MODE GOLDEN DEVICE [--explain] [--default]``
reads case ids from standard input, one per line, and writes one JSON row per line to
standard output. With ``--default``, a row compares the default with strict, else see
:func:`harness.parity.replay.judge`. ``--explain`` adds every compared quantity.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from harness.parity import drivers
from harness.parity.cases import read_cases
from harness.parity.distance import Comparison, divergence
from harness.parity.replay import agree, judge
from harness.processes.child import unsearched

OPTIONAL = ("matplotlib", "pandas", "sklearn")
"""What Keras imports where it is installed: a quarter of the start of TensorFlow."""


def main(arguments: list[str]) -> None:
    """Replay the cases named on standard input, in their order."""
    backend, mode, golden, device = arguments[:4]
    cases = {case.id: case for case in read_cases(Path(golden))}
    # A new driver for every replay, so that no state is shared.
    make_driver = partial(drivers.load, backend, mode, device=device)
    sys.modules.update(dict.fromkeys(OPTIONAL))  # type: ignore[arg-type]
    with unsearched():
        make_driver().close()
    for identifier in filter(None, sys.stdin.read().split("\n")):
        case = cases[identifier]
        if "--default" in arguments:
            row = agree(case, make_driver)
            compared: Sequence[Comparison] = []
        else:
            row, compared = judge(case, backend, mode, device)
        content = row.as_json()
        if "--explain" in arguments:
            content["explanation"] = list(map(_explanation, compared))
        print(json.dumps(content), flush=True)


def _explanation(comparison: Comparison) -> dict[str, object]:
    """Return a quantity at its worst element, with hexadecimal values."""
    ulp, raw, _ = comparison.distance
    return {**asdict(divergence(comparison)), "ulp": str(ulp), "raw": str(raw)}


if __name__ == "__main__":
    main(sys.argv[1:])
