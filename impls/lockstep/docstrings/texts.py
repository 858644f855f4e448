"""All shared docstring texts: those of each capability and of the interface."""

from __future__ import annotations

import inspect

from lockstep.docstrings import (
    clipping,
    masters,
    multitask,
    optimizers,
    scaling,
    schedules,
    step,
    workers,
)
from lockstep.interface import Wrapper

__all__ = ["METHODS", "TEXTS"]

METHODS: dict[str, str] = {
    name: inspect.getdoc(getattr(Wrapper, name)) or ""
    for name in ("apply_gradients", "compute_gradients", "get_name", "minimize")
}
"""Name of a method -> its docstring in the interface."""

TEXTS: dict[str, str] = {
    **clipping.TEXTS,
    **masters.TEXTS,
    **multitask.TEXTS,
    **optimizers.TEXTS,
    **scaling.TEXTS,
    **schedules.TEXTS,
    **step.TEXTS,
    **workers.TEXTS,
    **METHODS,
}
"""Name of a class or function -> the docstring text that all backends share."""
