"""Compare the Adams of three frameworks on the same gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from harness.figures.marks import log_axis
from harness.figures.plot import Drawing, draw_one
from harness.figures.style import WIDTH, Theme
from harness.pages.tables import Cell, table
from harness.pages.templating import number, render
from harness.parity.drivers.framework_rules import KerasAdam, TorchAdam
from lockstep.interface import Array
from lockstep.reference import AdamOptimizer, Variable
from lockstep.reference.optimizers import RuleOptimizer

ADAMS: Mapping[str, Callable[[], RuleOptimizer]] = {
    "TensorFlow 1": lambda: AdamOptimizer(1.0),
    "Keras 3": lambda: KerasAdam(1.0, epsilon=1e-7),
    "PyTorch": lambda: TorchAdam(1.0),
}
"""Name -> the optimizer with its framework's default epsilon and learning rate 1.

The parity run compares Keras' with the framework, and a test PyTorch's.
"""

STYLES = {"TensorFlow 1": "strict", "Keras 3": "none", "PyTorch": "default"}
"""Name -> the color in figures."""

SIZES = (1.0, 1e-4, 1e-6, 1e-7, 1e-8)
"""Factors of the gradients in the table."""

STEPS = (1, 1000)
ELEMENTS = 200


def series(steps: int) -> Array:
    """Return the gradients of the table, one row per step: normal with mean 1."""
    rng = np.random.default_rng(0)
    return (1 + rng.standard_normal((steps, ELEMENTS))).astype(np.float32)


def moves(
    make: Callable[[], RuleOptimizer], gradients: Sequence[Array], at: Sequence[int]
) -> list[Array]:
    """Return the weights after each number of steps in ``at``; they start at 0."""
    optimizer = make()
    weights = Variable("w", np.zeros_like(gradients[0]))
    after = []
    for step, gradient in enumerate(gradients, 1):
        optimizer.apply_gradients([(gradient, weights)])
        if step in at:
            after.append(weights.value.copy())
    return after


def adam_insert(folder: Path) -> str:
    """Draw the figure into ``folder``; return the insert with it and the table."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw_one(_drawing(), folder)
    return render("adam.md.jinja", figure=figure, table=_table())


def _table() -> str:
    """Return how far the weights moved on :func:`series`, for each of ``STEPS``."""
    shared = series(max(STEPS))
    rows: list[list[Cell]] = []
    for size in SIZES:
        gradients = list(shared * np.float32(size))
        after = [moves(make, gradients, STEPS) for make in ADAMS.values()]
        for steps, weights in zip(STEPS, zip(*after, strict=True), strict=True):
            means = [float(np.abs(each).mean()) / steps for each in weights]
            rows.append([_cell(size), _cell(steps), *map(_cell, means)])
    columns = ["Size of the gradients", "Steps", *ADAMS]
    return table(
        "Mean distance that weights went, in learning rates a step", columns, rows
    )


def _column(name: str, steps: int) -> str:
    return f"{name}, step {steps}"


def _cell(value: float) -> Cell:
    return Cell(number(value, 3), float(value))


def _drawing() -> Drawing:
    """The first and the last update over the size of a constant gradient."""
    sizes = np.logspace(-10, -4, 61, dtype=np.float32)
    late = max(STEPS)
    columns: dict[str, Array] = {"gradient": sizes}
    for name, make in ADAMS.items():
        first, before, last = moves(make, [sizes] * late, (1, late - 1, late))
        columns[_column(name, 1)] = -first
        columns[_column(name, late)] = before - last
    data = pd.DataFrame(columns)

    def paint(canvas: Canvas, theme: Theme) -> None:
        left, right = canvas.subplots(1, 2, sharey=True)
        _curves(left, data, 1, theme)
        _curves(right, data, late, theme)
        left.set_title("step 1")
        right.set_title(f"step {late}")
        left.set_ylabel("update / learning rate")
        left.legend(loc="upper left")

    return Drawing(
        "first",
        "In the first steps, TensorFlow 1 and Keras update small gradients far less",
        alt="The update over the size of the gradient at two steps. At the first step "
        "PyTorch's curve rises first, then TensorFlow 1's, then that of Keras 3. At "
        "the last step those of PyTorch and TensorFlow 1 are close to each other.",
        caption="The update of a weight whose gradient is the same at each step, with "
        "the epsilon that each framework has by default.",
        data=data,
        size=(WIDTH, 3.2),
        paint=paint,
    )


def _curves(axes: Axes, data: pd.DataFrame, step: int, theme: Theme) -> None:
    lines = dict(zip(ADAMS, ("-", "--", ":"), strict=True))
    for name, style in lines.items():
        color = theme.methods[STYLES[name]]
        update = data[_column(name, step)]
        axes.plot(data["gradient"], update, color=color, ls=style, label=name)
    log_axis(axes, "x", [10.0**k for k in range(-10, -3)])
    axes.set_xlabel("gradient")
