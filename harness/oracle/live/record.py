"""Run random cases on TensorFlow 1.15 and print them with their results.

``python -m harness.oracle.live.record`` reads cases from standard input, one JSON
object per line, each with its family and without ``expected``. It prints them with
``expected``. If a case raises, the class of the exception is recorded.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import tensorflow as tf

from harness.oracle.live.__main__ import FAMILIES, say
from harness.oracle.live.golden import Case, encoded

__all__ = ["recorded"]


def recorded(content: dict[str, Any]) -> dict[str, Any]:
    """Return a case with its result as ``expected``."""
    inputs = json.dumps(content["inputs"])
    case = Case(content["family"], {**content, "expected": {}})
    try:
        with tf.Graph().as_default():
            expected = encoded(FAMILIES[case.family](case))
    except Exception as error:  # an error may be the result
        expected = {"raises": type(error).__name__}
        content["note"] = str(error).split("\n")[0][:200]
    # A family may add inputs that an error case omits.
    return {**content, "inputs": json.loads(inputs), "expected": expected}


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    # Read everything first: the writer reads nothing before it has written all.
    for line in sys.stdin.readlines():
        say(recorded(json.loads(line)))
