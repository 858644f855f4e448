"""The base optimizers of TF1 rules, from the one table that every backend reads."""

from __future__ import annotations

from harness.pages.tables import Cell, table
from lockstep.spec.optimizers import OPTIMIZERS, OptimizerSpec, Parameter

__all__ = ["optimizers_insert"]


def optimizers_insert() -> str:
    """Return the table of optimizers: arguments with defaults and ranges, and state."""
    rows = [_row(spec) for spec in OPTIMIZERS.values()]
    columns = ["Class", "Arguments, in order", "State of each variable (initial value)"]
    return table("Arguments and state", columns, rows)


def _row(spec: OptimizerSpec) -> list[Cell | str]:
    arguments = ", ".join(_argument(parameter) for parameter in spec.parameters)
    slots = ", ".join(
        f"{slot.name} ({slot.initial})"
        + (f" if {slot.only_if}" if slot.only_if else "")
        for slot in spec.slots
    )
    return [
        Cell(spec.class_name, spec.class_name, "code"),
        Cell(arguments, arguments, "code wrap"),
        slots or "none",
    ]


def _argument(parameter: Parameter) -> str:
    if not isinstance(parameter.default, int | float | str):
        return parameter.name
    return f"{parameter.name}={parameter.default!r}"
