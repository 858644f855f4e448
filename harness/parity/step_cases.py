"""Error cases of ``optimize_loss``: the inputs they omit and those they override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case

__all__ = ["INPUTS", "INSTANCE", "PASSED_ON", "inputs_of_refused"]

PASSED_ON = (
    "dtype",
    "clip_gradients",
    "larc_params",
    "loss_scaling",
    "loss_scaling_params",
    "on_horovod",
    "iter_size",
    "summaries",
)
"""Arguments that are passed as recorded."""
INPUTS = (
    *PASSED_ON,
    "optimizer",
    "optimizer_params",
    "lr_policy",
    "variables",
    "gradients",
    "horovod_size",
    "skip_update",
    "trainable",
    "what",
)
INSTANCE, TWO_ROWS = "an Adam instance", "sparse, two rows"

# Inputs with which error cases that omit them were recorded: see FORMAT.md.
ASSUMED: Mapping[str, Any] = {
    "optimizer": "SGD",
    "optimizer_params": {},
    "lr_policy": {"name": "fixed_lr", "args": {"learning_rate": 0.1}},
    "dtype": "float32",
    "variables": [{"name": "w", "dtype": "float32", "shape": [2], "value": [1, 2]}],
    "gradients": [[[1, 1]]],
}


def inputs_of_refused(case: Case) -> Mapping[str, Any]:
    """Return the inputs of an error case. Omitted ones are set to ``ASSUMED``."""
    what = dict(case.inputs["what"])
    inputs = {**ASSUMED, **{k: v for k, v in case.inputs.items() if k != "what"}}
    shape = what.pop("variable_shape", None)
    if shape is not None:
        ones = np.ones(shape).tolist()
        inputs["variables"] = [
            {**inputs["variables"][0], "shape": shape, "value": ones}
        ]
        inputs["gradients"] = [[ones]]
    if "gradient" in what:
        inputs |= _with_gradient(what.pop("gradient"), inputs["variables"][0])
        inputs |= {"skip_update": [True]} if "iter_size" in what else {}
    for key in what:
        if key not in INPUTS:
            raise CannotInterpretError(f"the argument {key!r}")
    return {**inputs, **what}


def _with_gradient(spelled: Any, variable: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a gradient and a variable of the shape that it needs."""
    if spelled is None:
        return {"gradients": [[None]]}
    if spelled != TWO_ROWS:
        raise CannotInterpretError(f"the gradient {spelled!r}")
    rows = {"indices": [0, 1], "values": [[1, 1], [1, 1]], "dense_shape": [2, 2]}
    matrix = {**variable, "shape": [2, 2], "value": [[1, 2], [1, 2]]}
    return {"gradients": [[rows]], "variables": [matrix]}
