"""Summaries of gradients and steps, and the recorder that writes to TensorBoard."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.messages.step import summaries as words
from lockstep.messages.step.summaries import Summaries
from lockstep.pytorch.base.gradients import Pairs
from lockstep.pytorch.larc import LarcPolicy
from lockstep.pytorch.tensors.norms import accurate_norm, norm_of_each
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = [
    "StepSummaries",
    "TensorBoardRecorder",
    "record_norm",
    "record_pairs",
    "record_ratios",
]

GLOBAL_NORM, LARC = "global_gradient_norm", "larc_summaries"


class TensorBoardRecorder:
    """Write summaries with a ``torch.utils.tensorboard.SummaryWriter``.

    Args:
        writer: an object with the methods ``add_scalar`` and ``add_histogram``.
        global_step: the step under which summaries are written, >= 0. None lets the
            writer choose.

    Raises:
        TypeError: ``writer`` cannot write scalars.
        ValueError: ``global_step`` is not a valid step.

    Example:
        >>> class Printer:
        ...     def add_scalar(self, tag, value, global_step):
        ...         print(tag, value.item(), global_step)
        >>> recorder = TensorBoardRecorder(Printer(), global_step=7)
        >>> recorder.scalar("global_gradient_norm", torch.tensor(2.5))
        global_gradient_norm 2.5 7
    """

    def __init__(self, writer: Any, global_step: int | None = None) -> None:
        words.check_writer(writer, global_step, "TensorBoardRecorder")
        self.writer = writer
        self.global_step = global_step

    def scalar(self, tag: str, value: Tensor) -> None:
        """Write a 0-d tensor. The writer waits for its value."""
        self.writer.add_scalar(tag, value, self.global_step)

    def histogram(self, tag: str, values: Tensor) -> None:
        """Write the values of a tensor."""
        self.writer.add_histogram(tag, values, self.global_step)


class StepSummaries:
    """A hook that is called after each step of a wrapper.

    Args:
        target: a writer with ``add_scalar``, or a function of (numbers, step).
        every: the number of steps between two calls of ``target``.
        start: the number of steps that were taken before.
    """

    def __init__(self, target: Any, every: int, start: int) -> None:
        self.target, self.every, self.step = target, every, start

    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Count a step, and every ``every`` steps pass its numbers to the target."""
        self.step += 1
        if self.step % self.every:
            return
        numbers = optimizer.step_numbers()
        if not hasattr(self.target, "add_scalar"):
            self.target(numbers, self.step)
            return
        recorder = TensorBoardRecorder(self.target, self.step)
        for tag, value in numbers.items():
            recorder.scalar(tag, value)


def record_norm(asked: Summaries, kind: str, pairs: Pairs) -> None:
    """Record the global norm."""
    if asked.wants(GLOBAL_NORM):
        norm = accurate_norm([g for g, _ in pairs if g is not None])
        asked.scalar(GLOBAL_NORM, kind, norm)


def record_pairs(asked: Summaries, pairs: Pairs, names: list[str]) -> None:
    """Record the requested summaries of each present gradient and its parameter."""
    if not asked.wants("gradients", "gradient_norm", "variables", "variable_norm"):
        return
    for (gradient, parameter), name in zip(pairs, names, strict=True):
        if gradient is None:
            continue
        dense = sum_duplicates(gradient).values if gradient.is_sparse else gradient
        record_values(asked, "gradient", dense, name)
        record_values(asked, "variable", parameter.detach(), name)


def record_values(asked: Summaries, what: str, values: Tensor, name: str) -> None:
    """Record the finite values of a tensor, and its norm in float32."""
    if asked.wants(f"{what}s"):
        finite = torch.where(values.isfinite(), values, 0)
        asked.histogram(f"{what}s", finite, name)
    if asked.wants(f"{what}_norm"):
        asked.scalar(f"{what}_norm", f"{what}_norm", norm_of_each([values])[0], name)


def record_ratios(
    asked: Summaries,
    policy: LarcPolicy,
    names: list[str],
    numbers: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Record LARC's ratios, and the rate times each; in mode "clip" also which are < 1.

    Args:
        asked: the requested summaries and their recorder.
        policy: LARC's parameters.
        names: the names of the n parameters.
        numbers: raw ratios [n], ratios [n], and the rate, 0-d or [n].
    """
    if not asked.wants(LARC):
        return
    raw, ratio, rate = numbers
    kinds = {words.LARC_UPDATE: ratio, words.LARC_RATE: rate * ratio}
    if policy.larc_mode == "clip":
        kinds = {words.LARC_CLIP_ON: (raw < 1).int(), **kinds}
    for kind, values in kinds.items():
        for name, value in zip(names, values.unbind(), strict=True):
            asked.scalar(LARC, kind, value, name)
