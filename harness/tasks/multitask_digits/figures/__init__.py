"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding
from harness.tasks.absent_heads.drawing import comparison, heads, sweep
from harness.tasks.multitask_digits.figures.backends import backends
from harness.tasks.multitask_digits.figures.brief import beside, brief
from harness.tasks.multitask_digits.figures.losses import losses
from harness.tasks.multitask_digits.figures.movement import movement
from harness.tasks.multitask_digits.figures.state import state

__all__ = ["beside", "brief", "drawings"]


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    tables = finding.tables
    if "sweep" in tables:
        yield sweep(tables["sweep"], "loss", "nats")
    if "comparison" in tables:
        yield from tuned(finding)
        return
    yield losses(finding)
    if len(tables["movement"]):
        yield movement(finding)
    if len(tables["state"]):
        yield state(finding)
    if len(tables["backends"]):
        yield backends(finding)


def tuned(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures of arms that each have their own learning rate."""
    tables = finding.tables
    if len(tables["comparison"]):
        yield comparison(tables["comparison"], "held-out loss")
    if tables["heads"]["ratio"].notna().any():
        yield heads(tables["heads"], "All heads of a run together.")
