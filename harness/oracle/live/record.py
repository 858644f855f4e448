"""Run fresh cases on TensorFlow 1.15 and print them with what came out.

``python -m harness.oracle.live.record`` reads cases from standard input, one JSON
object a line, each with its family and without ``expected``, and prints them with it.
An exception is what came out too: its class is recorded.
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
    """Return a case with its expectation."""
    inputs = json.dumps(content["inputs"])
    case = Case(content["family"], {**content, "expected": {}})
    try:
        with tf.Graph().as_default():
            expected = encoded(FAMILIES[case.family](case))
    except Exception as error:  # what is recorded may be an error
        expected = {"raises": type(error).__name__}
        content["note"] = str(error).split("\n")[0][:200]
    # A family may fill in what an error case leaves out.
    return {**content, "inputs": json.loads(inputs), "expected": expected}


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    # All of it first: who writes it reads nothing before it is written.
    for line in sys.stdin.readlines():
        say(recorded(json.loads(line)))
