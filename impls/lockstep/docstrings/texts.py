"""All texts, of one module a capability."""

from __future__ import annotations

from lockstep.docstrings import (
    clipping,
    masters,
    scaling,
    schedules,
    step,
    workers,
)

__all__ = ["TEXTS"]

TEXTS: dict[str, str] = {
    **clipping.TEXTS,
    **masters.TEXTS,
    **scaling.TEXTS,
    **schedules.TEXTS,
    **step.TEXTS,
    **workers.TEXTS,
}
"""Name of a class or function -> what the docstrings of all backends share."""
