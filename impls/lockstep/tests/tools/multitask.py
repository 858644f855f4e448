"""The multitask wrapper, and the function that clips as it does."""

from __future__ import annotations

from lockstep import errors
from lockstep.tests.kit import EVERYWHERE, Cells, Mistake, Wrap, clipped

__all__ = ["MISTAKES", "PARALLEL", "SIGNATURES", "WRAPPERS"]

SIGNATURES = {
    "MultitaskOptimizerWrapper": "opt",
    "clip_gradients_by_global_norm": "gradients_variables, clip_norm=20.0",
}

WRAPPERS: dict[str, Wrap] = {
    "multitask": lambda k, w: k.ls.MultitaskOptimizerWrapper(k.base(w)),
}

MISTAKES: dict[str, Mistake] = {
    "no optimizer for multitask": (
        lambda k: k.ls.MultitaskOptimizerWrapper(3),
        errors.NotAnOptimizerError,
        "ptimizer, got int; pass the optimizer whose state is to be kept",
    ),
    "a norm below 0": (
        lambda k: k.ls.clip_gradients_by_global_norm(*clipped(k, -1.0)),
        errors.OutOfRangeError,
        "clip_norm: expected a finite number > 0, got -1.0",
    ),
}

PARALLEL: dict[str, Cells] = {
    "`MultitaskOptimizerWrapper`": EVERYWHERE,
}
