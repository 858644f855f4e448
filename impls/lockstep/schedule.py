"""The command ``lockstep schedule``: draw a learning-rate policy.

It draws text, and with matplotlib SVG, PDF and CSV. The NumPy reference computes the
rates, so no framework is needed.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lockstep import registry
from lockstep.errors import (
    LockstepError,
    MissingFrameworkError,
    OutOfRangeError,
    sentence,
)
from lockstep.interface import Array
from lockstep.policies import bind

WIDTH, HEIGHT = 72, 14
MARGIN = 13
"""Columns for the labels of the vertical axis."""

MANY_STEPS = 1_000_000
BLOCKS = " ▁▂▃▄▅▆▇█"
STABLE: dict[Any, Any] = {"svg.hashsalt": "lockstep"}
METADATA: Mapping[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""With STABLE and METADATA, the same rates give the same bytes."""


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
        arguments = ", ".join(
            f"{name}={value}" for name, value in self.arguments.items()
        )
        return f"{self.policy}({arguments})" + (" (strict)" if self.strict else "")


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` arguments; a value is a Python literal, or else a string."""
    values: dict[str, Any] = {}
    for word in arguments:
        name, equals, text = word.partition("=")
        if not equals or not name:
            remedy = "write decay_steps=1000, for example"
            raise _refused("schedule", "NAME=VALUE", repr(word), remedy)
        if name in values:
            remedy = "leave one of the two out"
            raise _refused("schedule", f"{name} once", "it twice", remedy)
        if text in ("true", "false"):
            remedy = f"write {name}={text.capitalize()}"
            raise _refused(name, "True or False", text, remedy)
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            values[name] = text
    return values


def schedule(
    policy: str, arguments: Mapping[str, Any], steps: int | None, strict: bool
) -> Schedule:
    """Compute the rates of ``policy`` at ``steps`` steps, or until they are constant.

    Raises:
        LockstepError: there is no such policy, it does not have these arguments, or a
            rate is not finite.
    """
    bound = bind(policy, arguments)
    policies = registry.load("reference", strict).lr_policies
    function = functools.partial(getattr(policies, policy), **bound)
    # Rates that overflow are an error here, so NumPy need not warn of them.
    function = np.errstate(all="ignore")(function)
    try:
        function(0)
        count = _settled_after(bound) if steps is None else steps
        if not 1 <= count <= MANY_STEPS:
            expected = f"between 1 and {MANY_STEPS} steps"
            raise _refused("--steps", expected, str(count), "give another number")
        rates = np.broadcast_to(function(np.arange(count)), count)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, LockstepError):
            raise
        expected, remedy = "arguments that the policy takes", "look at its table"
        raise _refused(policy, expected, str(error), remedy) from error
    if not np.isfinite(rates).all():
        step = int(np.argmin(np.isfinite(rates)))
        got = f"{float(rates[step])} at step {step}"
        remedy = "give other arguments, or fewer --steps"
        raise _refused(policy, "rates that are finite in float32", got, remedy)
    return Schedule(policy, bound, rates, strict)


def as_text(drawn: Schedule, width: int) -> str:
    """Draw the rates as columns of text; a column shows the largest of its rates.

    No line of the drawing is wider than ``width``.
    """
    columns = max(min(WIDTH, len(drawn.rates), width - MARGIN), 1)
    highest = [float(part.max()) for part in np.array_split(drawn.rates, columns)]
    top = max(highest) or 1.0
    lines = [drawn.title]
    for row in range(HEIGHT - 1, -1, -1):
        label = f"{top * (row + 1) / HEIGHT:10.3g} " if row % 4 == 1 else " " * 11
        eighths = (round(8 * (value / top * HEIGHT - row)) for value in highest)
        cells = "".join(BLOCKS[min(max(count, 0), 8)] for count in eighths)
        lines.append(f"{label}│{cells}")
    last = str(len(drawn.rates) - 1)
    rates = drawn.rates
    ends = f"first {rates[0]:.6g}, largest {rates.max():.6g}, last {rates[-1]:.6g}"
    steps = "0" + last.rjust(max(columns - 1, len(last) + 1))
    lines += [f"{' ' * 11}└{'─' * columns}", f"{' ' * 12}{steps}", f"{' ' * 12}{ends}"]
    return "\n".join(lines)


def write_files(drawn: Schedule, folder: Path) -> list[Path]:
    """Draw the rates as SVG and PDF and write them as CSV; return the files.

    Raises:
        LockstepError: matplotlib is missing, or the folder cannot be written to.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        remedy = "run pip install matplotlib"
        text = sentence("--out", "matplotlib to be installed", "none", remedy)
        raise MissingFrameworkError(text) from error
    with mpl.rc_context(STABLE):
        canvas = Figure(figsize=(6.4, 3.2), layout="constrained")
        axes = canvas.subplots()
        axes.plot(np.arange(len(drawn.rates)), drawn.rates)
        axes.set(xlabel="step", ylabel="learning rate", title=drawn.policy)
        axes.set_ylim(bottom=0)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files = [folder / f"{drawn.policy}{end}" for end in METADATA]
            for path in files:
                canvas.savefig(path, metadata=METADATA[path.suffix])
            rows = (f"{step},{rate:.6g}" for step, rate in enumerate(drawn.rates))
            files.append(folder / f"{drawn.policy}.csv")
            text = "\n".join(["step,rate", *rows, ""])
            files[-1].write_text(text, "utf-8", newline="\n")
            return files
        except OSError as error:
            expected = "a folder to write into"
            raise _refused("--out", expected, str(folder), str(error)) from error


def _settled_after(arguments: Mapping[str, Any]) -> int:
    """Return the number of steps until the rate is constant, and a few more."""
    decays = 5 if "decay_rate" in arguments else 1
    per_epoch = arguments.get("steps_per_epoch") or 1
    numbers = [
        arguments.get("begin_decay_at", 0) + decays * arguments.get("decay_steps", 0),
        4 * arguments.get("warmup_steps", 0),
        *(per_epoch * boundary for boundary in arguments.get("boundaries", ())),
    ]
    return min(int(1.15 * max(*numbers, 10)) + 1, MANY_STEPS)


def _refused(subject: str, expected: str, got: str, remedy: str) -> OutOfRangeError:
    return OutOfRangeError(sentence(subject, expected, got, remedy))
