"""The figures of the experiment, each a function of a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator

from harness.finding import Finding
from harness.plot import Drawing
from harness.tasks.multitask_digits.figures.backends import backends
from harness.tasks.multitask_digits.figures.brief import brief
from harness.tasks.multitask_digits.figures.losses import losses
from harness.tasks.multitask_digits.figures.movement import movement
from harness.tasks.multitask_digits.figures.state import state

__all__ = ["brief", "drawings"]


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield what there is to draw, in reading order."""
    if len(finding.tables["movement"]):
        yield movement(finding)
    if len(finding.tables["state"]):
        yield state(finding)
    yield losses(finding)
    if len(finding.tables["backends"]):
        yield backends(finding)
