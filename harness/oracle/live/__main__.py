"""Replay recorded cases on TensorFlow 1.15 and print one JSON line per case.

``python -m harness.oracle.live FOLDER [FAMILY ...]``. The first line has the number of
cases and the versions. With ``--versions`` instead of a folder, only that is printed.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from harness.oracle.live import agn, scales, wrappers
from harness.oracle.live.compare import compare
from harness.oracle.live.golden import Case, read_cases

__all__ = ["FAMILIES", "replay"]

FAMILIES: dict[str, Callable[[Case], dict[str, Any]]] = {
    "agn": agn.agn,
    "base_optimizers": wrappers.base_optimizers,
    "loss_scale_dynamic": scales.loss_scale,
    "loss_scale_fixed": scales.loss_scale,
    "multitask": wrappers.multitask,
    "multitask_clip": wrappers.multitask_clip,
    "variable_clipping": wrappers.variable_clipping,
}


def replay(case: Case) -> dict[str, Any]:
    """Replay one case in a new graph. Return the row of a report."""
    row: dict[str, Any] = {"id": case.id, "family": case.family, "kind": case.kind}
    row["source"], row["optimizer"] = case.source, optimizer_of(case)
    raises = case.expected.get("raises")
    if "tensorflow" not in case.source:
        return {**row, "status": "not live"}
    try:
        if case.family not in FAMILIES:
            raise NotImplementedError(f"the family {case.family!r}")
        with tf.Graph().as_default():
            result = FAMILIES[case.family](case)
    except Exception as error:  # this may be the recorded exception
        message = f"{type(error).__name__}: {error}"
        if raises == type(error).__name__:
            return {**row, "status": "identical", "compared": 1}
        return {**row, "status": "error", "reason": message[:500]}
    if raises is not None:
        reason = f"expected {raises}, nothing was raised"
        return {**row, "status": "error", "reason": reason}
    values = list(compare(case.expected, result))
    apart = [value for value in values if value.ulp != 0]
    row["compared"] = len(values)
    if not apart:
        return {**row, "status": "identical"}
    worst = max(value.ulp for value in apart)
    row["ulp"] = worst if np.isfinite(worst) else "inf"
    row["different"], row["first"] = len(apart), apart[0].as_json()
    return {**row, "status": "different"}


def optimizer_of(case: Case) -> str:
    """Return the name of the base optimizer, or an empty text."""
    spec = case.inputs.get("optimizer", "")
    return str(spec["name"] if isinstance(spec, dict) else spec)


def say(line: dict[str, Any]) -> None:
    """Print one line immediately, so that the reader can show progress."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Replay the cases that the command line names."""
    folder, *families = sys.argv[1:]
    known = folder != "--versions"
    cases = list(read_cases(Path(folder), families)) if known else []
    versions = {"tensorflow": tf.__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    say({"cases": len(cases), "environment": versions})
    for case in cases:
        say(replay(case))


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main()
