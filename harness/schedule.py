"""Draw a learning-rate policy: in the terminal, and as SVG, PDF and CSV.

The rates are those of the NumPy reference; no framework is needed.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text

from harness.errors import HarnessError
from lockstep import registry
from lockstep.interface import Array
from lockstep.spec.errors import sentence
from lockstep.spec.lr_policies import find

__all__ = ["Schedule", "draw_schedule", "parse", "print_schedule", "schedule"]

WIDTH, HEIGHT = 72, 14
MANY_STEPS = 1_000_000
BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Schedule:
    """The rates of one policy at the steps 0, 1, ..."""

    policy: str
    arguments: Mapping[str, Any]
    rates: Array
    strict: bool

    @property
    def title(self) -> str:
        """The call that gives these rates."""
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.policy}({given})" + (" (strict)" if self.strict else "")

    @property
    def data(self) -> pd.DataFrame:
        """The CSV: a row a step."""
        return pd.DataFrame({"step": np.arange(len(self.rates)), "rate": self.rates})


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` words; a value is a Python literal, or else a text."""
    given: dict[str, Any] = {}
    for word in arguments:
        name, equals, text = word.partition("=")
        if not equals or not name:
            remedy = "write decay_steps=1000, for example"
            raise HarnessError(sentence("schedule", "NAME=VALUE", repr(word), remedy))
        if name in given:
            expected, remedy = f"{name} once", "leave one of the two out"
            raise HarnessError(sentence("schedule", expected, "it twice", remedy))
        try:
            given[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            given[name] = text
    return given


def schedule(
    policy: str, arguments: Mapping[str, Any], steps: int | None, strict: bool
) -> Schedule:
    """Compute the rates of ``policy`` at ``steps`` steps, or at those that matter."""
    bound = find(policy).bind(arguments)
    policies = registry.load("reference", strict).lr_policies
    function = functools.partial(getattr(policies, policy), **bound)
    try:
        function(0)
        count = _steps_that_matter(bound) if steps is None else steps
        if not 1 <= count <= MANY_STEPS:
            expected = f"between 1 and {MANY_STEPS} steps"
            remedy = "give another number"
            raise HarnessError(sentence("--steps", expected, str(count), remedy))
        rates = function(np.arange(count))
    except (TypeError, OverflowError) as error:
        raise HarnessError(f"{policy}: {error}") from error
    return Schedule(policy, bound, np.broadcast_to(rates, count), strict)


def print_schedule(drawn: Schedule, console: Console) -> None:
    """Draw the rates as columns of text, the largest of each column's steps."""
    width = max(min(WIDTH, len(drawn.rates), console.width - 13), 1)
    columns = [float(part.max()) for part in np.array_split(drawn.rates, width)]
    top = max(columns) or 1.0
    console.print(Text(drawn.title))
    for row in range(HEIGHT - 1, -1, -1):
        label = f"{top * (row + 1) / HEIGHT:10.3g} " if row % 4 == 1 else " " * 11
        cells = (_cell(value / top * HEIGHT - row) for value in columns)
        console.print(Text.assemble(f"{label}│", ("".join(cells), "cyan")))
    console.print(Text(" " * 11 + "└" + "─" * width))
    last = str(len(drawn.rates) - 1)
    console.print(Text(" " * 12 + "0" + last.rjust(max(width - 1, len(last) + 1))))
    rates = drawn.rates
    ends = f"first {rates[0]:.6g}, largest {rates.max():.6g}, last {rates[-1]:.6g}"
    console.print(Text(" " * 12 + ends))


def draw_schedule(drawn: Schedule, folder: Path) -> list[Path]:
    """Draw the rates as SVG (light, dark) and PDF, with their CSV; return the files."""
    from harness.plot import Canvas, Drawing, Theme, draw_one

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        method = "strict" if drawn.strict else "default"
        axes.plot(drawn.data["step"], drawn.data["rate"], color=theme.methods[method])
        axes.set_xlabel("step")
        axes.set_ylabel("learning rate")
        axes.set_ylim(bottom=0)

    words = (drawn.policy, drawn.title, f"The rates of {drawn.title}.", "")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure = draw_one(Drawing(*words, drawn.data, (6.4, 3.2), paint), folder)
    except OSError as error:
        text = sentence("--out", "a folder to write into", str(folder), str(error))
        raise HarnessError(text) from error
    return [figure.light, figure.dark, figure.pdf, figure.csv]


def _steps_that_matter(arguments: Mapping[str, Any]) -> int:
    """Return the steps until nothing changes any more, and a few on top."""
    decays = 5 if "decay_rate" in arguments else 1
    per_epoch = arguments.get("steps_per_epoch") or 1
    numbers = [
        arguments.get("begin_decay_at", 0) + decays * arguments.get("decay_steps", 0),
        4 * arguments.get("warmup_steps", 0),
        *(per_epoch * boundary for boundary in arguments.get("boundaries", ())),
    ]
    return min(int(1.15 * max(*numbers, 10)) + 1, MANY_STEPS)


def _cell(filled: float) -> str:
    """Return the block for a cell that is filled to this share."""
    eighths = round(8 * min(max(filled, 0.0), 1.0))
    return BLOCKS[eighths]
