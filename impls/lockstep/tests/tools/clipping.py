"""Clipping by the norm as in OpenSeq2Seq, and LARC."""

from __future__ import annotations

import math

from lockstep import errors
from lockstep.tests.kit import EVERYWHERE, Cells, Mistake, clipped

__all__ = ["MISTAKES", "PARALLEL", "SIGNATURES"]

SIGNATURES = {
    "clip_by_global_norm": "t_list, clip_norm, use_norm, name=None",
    "clip_gradients_by_norm": "grads_and_vars, clip_gradients",
    "post_process_gradients": "grads_and_vars, summaries, lr, clip_gradients, "
    "larc_params",
}

MISTAKES: dict[str, Mistake] = {
    "a norm of NaN": (
        lambda k: k.ls.clip_gradients_by_norm(*clipped(k, math.nan)),
        errors.OutOfRangeError,
        "clip_gradients: expected a finite number > 0, got nan",
    ),
    "a text to clip": (
        lambda k: k.ls.clip_by_global_norm("x", 1.0),
        errors.NotASequenceError,
        "t_list: expected a sequence of tensors, got a str; put the tensors",
    ),
    "an argument of LARC": (
        lambda k: k.ls.post_process_gradients(*clipped(k, [], 0.1, None, {"foo": 1})),
        errors.LockstepError,
        "larc",
    ),
    "an unknown summary": (
        lambda k: k.ls.post_process_gradients(
            *clipped(k, ["gradient"], 0.1, None, None)
        ),
        errors.UnknownNameError,
        r"got 'gradient'; did you mean 'gradients'\?",
    ),
}

PARALLEL: dict[str, Cells] = {
    "`clip_gradients_by_global_norm`, `clip_by_global_norm`, "
    "`clip_gradients_by_norm`": EVERYWHERE,
    "`post_process_gradients` with LARC": EVERYWHERE,
}
