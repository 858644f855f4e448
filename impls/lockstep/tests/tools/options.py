"""The options of every tool."""

from __future__ import annotations

from lockstep.tests.kit import WHOLE_ONLY, Cells

__all__ = ["PARALLEL"]

PARALLEL: dict[str, Cells] = {"`capturable=True`": WHOLE_ONLY}
