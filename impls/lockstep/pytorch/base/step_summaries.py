"""Pass the numbers of each step to a TensorBoard writer or to a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from lockstep.pytorch.base.summaries import TensorBoardRecorder

__all__ = ["StepSummaries"]

Target = Callable[[dict[str, float], int], Any]


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
