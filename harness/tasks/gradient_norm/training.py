"""One run: clip lists of gradients by both functions and compare the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.gradient_norm.data import GradientList, lists_of
from harness.tasks.gradient_norm.settings import Settings
from lockstep.interface import Array

__all__ = ["prepare", "train"]


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run.

    Series, one entry per list: ``multitask`` and ``stock``, the global norms of the two
    functions; the first is the original's if it was recorded. ``entries``, the number
    of elements of the clipped gradients, and ``unequal``, how many differ in any bit.
    Summary: ``ratio``, the largest multitask / stock; ``equal``, the share of lists
    whose norms agree to the bit; ``unequal``, the share of elements.
    """
    settings = Settings(**config)
    model = backends.model(__package__, backend)
    rows = [_compare(model, each, device) for each in lists_of(settings, seed)]
    series = {name: [row[name] for row in rows] for name in rows[0]}
    multitask, stock = np.array(series["multitask"]), np.array(series["stock"])
    summary = {
        "ratio": float((multitask / stock).max()),
        "equal": float((multitask == stock).mean()),
        "unequal": sum(series["unequal"]) / sum(series["entries"]),
    }
    return Outcome("ok", "", series, summary)


def _compare(model: Any, given: GradientList, device: str) -> dict[str, float]:
    """Return the norms and the differences of one list, clipped by both functions."""
    ours, norm = model.multitask_clip(given.gradients, given.clip_norm, device)
    theirs, stock = model.stock_clip(given.gradients, given.clip_norm, device)
    return {
        "multitask": float(norm if given.norm is None else given.norm),
        "stock": float(stock),
        "entries": float(sum(gradient.size for gradient in given.gradients)),
        "unequal": float(sum(map(_unequal, ours, theirs))),
    }


def _unequal(ours: Array, theirs: Array) -> int:
    """Count elements that differ in any bit."""
    bits = [array.view(np.uint32) for array in (ours, theirs)]
    return int((bits[0] != bits[1]).sum())
