"""Row clipping in stacks."""

from __future__ import annotations

from typing import Any

from harness.composition.layers import RIGHT, Layer, Model, Nesting
from harness.parity.drivers.protocol import Driver

__all__ = ["FEW_STACKS", "LAYERS", "MAX_NORM", "NESTINGS", "STACKS", "TITLES"]

MAX_NORM = 0.75
"""Norm above which a row is clipped."""


def _rows(driver: Driver, opt: Any, model: Model) -> Any:
    """Clip rows of the first variable, a matrix."""
    axes = {driver.key(model.variables[0]): [1]}
    return driver.names.VariableClippingOptimizer(opt, axes, MAX_NORM)


LAYERS = {"rows": Layer("VariableClippingOptimizer", _rows, "row clipping")}
TITLES = {"rows": "Row clipping"}
STACKS = ("rows Adam", "multitask rows AdamW")
FEW_STACKS = ("multitask rows AdamW",)
NESTINGS = {
    ("rows", "rows"): RIGHT,
    ("rows", "multitask"): Nesting("zero clips"),
    ("multitask", "rows"): RIGHT,
}
