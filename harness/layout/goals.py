"""The goals of the layout plan, to be compared with the counts."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COUNT_GOALS", "STEP_GOALS"]

COUNT_GOALS: Mapping[str, int] = {
    "lines": 26_500,
    "modules": 180,
    "modules in one folder, at most": 12,
    "modules with 25 lines of code or fewer": 10,
    "functions over 45 lines": 0,
    "lines of a function's body, 90th percentile": 15,
    "lines of a file, 90th percentile": 280,
    "public names with a docstring, %": 100,
    "docstring lines that two backends have word for word": 100,
    "lists of public names": 1,
}
"""Name of a count -> goal for ``impls/``: upper limits, except the percentage."""

STEP_GOALS: Mapping[str, Mapping[str, str]] = {
    "loss scaling with a clip": {"pytorch": "6 / 10"},
    "optimize_loss with LARC": {"pytorch": "10 / 24"},
    "optimize_loss with a clip, building the graph": {"tf": "14 / 45"},
}
"""Name of a step -> backend -> upper limits: files / changes of file."""
