"""Inserts of the base optimizers and of the pipeline, from the shared tables."""

from __future__ import annotations

from harness.pages.markup.tables import CARDS, Cell, table
from lockstep.interface import WRAPPERS
from lockstep.optimizers import OPTIMIZERS, OptimizerSpec, Parameter
from lockstep.pipeline import ARGUMENTS, STAGES, Stage


def optimizers_insert() -> str:
    """Return the table of optimizers: arguments with defaults, and state."""
    rows = [_row(spec) for spec in OPTIMIZERS.values()]
    columns = ["Class", "Arguments, in order", "State of each variable (initial value)"]
    return table("Arguments and state", columns, rows)


def pipeline_insert() -> str:
    """Return the table of stages: description, wrappers and argument of each."""
    rows = [_stage(number, stage) for number, stage in enumerate(STAGES, 1)]
    columns = ["Stage", "What happens", "Wrapper", "Argument"]
    title = "The pipeline, and which argument of optimize_loss asks for a stage"
    return table(title, columns, rows, style=CARDS)


def _stage(number: int, stage: Stage) -> list[Cell | str]:
    wrappers = [name for name, each in WRAPPERS.items() if stage.name in each]
    if stage.name in ("norm", "clip"):
        wrappers = [f"{name} with clip_norm" for name in WRAPPERS if "Mixed" in name]
    taken_by, argument = ", ".join(wrappers), ARGUMENTS.get(stage.name, "")
    return [
        Cell(f"{number}\N{NO-BREAK SPACE}{stage.name}", f"{number:02}"),
        stage.sentence,
        Cell(taken_by, taken_by, "code wrap"),
        Cell(argument, argument, "code"),
    ]


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
