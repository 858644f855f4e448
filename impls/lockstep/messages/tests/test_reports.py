"""What a report shows of itself."""

from __future__ import annotations

from lockstep.interface import NO_STEP, StepReport
from lockstep.messages.scaling.loss_scaling import ScaledStepReport


def test_the_repr_of_a_report_shows_every_field() -> None:
    report = ScaledStepReport.of(StepReport(True, "finite", ("w",)), ("b",), 2.0, 0.5)
    assert repr(report) == (
        "ScaledStepReport(applied=True, reason='finite', skipped=('w',), "
        "nonfinite=('b',), norm=2.0, clip_factor=0.5)"
    )
    assert repr(ScaledStepReport(*NO_STEP)).endswith("norm=None, clip_factor=None)")
