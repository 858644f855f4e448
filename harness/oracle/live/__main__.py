"""Run cases on TensorFlow 1.15.

Standard input has one case per line, as JSON. The first line of the output has the
versions. Each following line has the result of a case as ``expected``, in the form of a
golden file. If the case raises, that is the class of the exception.
"""

from __future__ import annotations

import json
import platform
import sys
from typing import Any

import numpy as np
import tensorflow as tf

from harness.oracle.live import agn, families
from harness.oracle.live.cases import Case, encoded

FAMILIES = {
    "agn": agn.agn,
    "base_optimizers": families.base_optimizers,
    "loss_scale_dynamic": families.loss_scale,
    "loss_scale_fixed": families.loss_scale,
    "multitask": families.multitask,
    "multitask_clip": families.multitask_clip,
    "variable_clipping": families.variable_clipping,
}


def run(content: dict[str, Any]) -> dict[str, Any]:
    """Run one case in a new graph."""
    try:
        with tf.Graph().as_default():
            return {"expected": encoded(FAMILIES[content["family"]](Case(content)))}
    except Exception as error:  # An error may be the result.
        note = str(error).split("\n")[0][:200]
        return {"expected": {"raises": type(error).__name__}, "note": note}


def say(line: dict[str, Any]) -> None:
    """Print one line immediately: the reader waits for it."""
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    versions = {"tensorflow": tf.__version__, "numpy": np.__version__}
    say({**versions, "python": platform.python_version()})
    for case in sys.stdin:
        say(run(json.loads(case)))
