"""The scalers' limits: the answer is what records say, and every check can fail."""

from __future__ import annotations

from typing import Any

import pytest

from harness.declarations import declare
from harness.records.record import Outcome
from harness.tasks.scaler_limits import findings
from harness.tasks.scaler_limits.settings import (
    ON_DEVICE,
    PEER,
    RAISES,
    WARNS,
    Settings,
)
from harness.tests.makers import scaler_as_promised
from harness.tests.synthetic import record_of

EXPERIMENT = declare.find("scaler_limits")
BACKENDS = ("pytorch", "tf")


def judged(
    situation: str = "", subject: str = "", backend: str = "", **changes: Any
) -> Any:
    """Judge what was promised, with some runs changed in a series or a summary."""
    records = []
    for run in EXPERIMENT.runs("quick"):
        of = Settings(**run.config)
        for name in BACKENDS:
            outcome = scaler_as_promised(of, name)
            filters = [
                (situation, of.situation),
                (subject, of.subject),
                (backend, name),
            ]
            if changes and all(chosen in ("", own) for chosen, own in filters):
                outcome = changed(outcome, **changes)
            records.append(record_of(run, name, outcome))
    return findings.judge(records)


def changed(outcome: Outcome, reason: str | None = None, **values: Any) -> Outcome:
    series = {name: list(column) for name, column in outcome.series.items()}
    for name in values.keys() & series.keys():
        series[name] = [values[name]] * len(series[name])
    summary = {
        **outcome.summary,
        **{k: v for k, v in values.items() if k not in series},
    }
    said = outcome.reason if reason is None else reason
    return Outcome("ok", said, series, summary)


def test_records_that_keep_every_promise_pass_every_check() -> None:
    judgement = judged()
    assert not any(line.startswith("Does not") for line in judgement.small_print)
    assert "trains on under Lockstep (pytorch and tf), and makes" in judgement.answer
    assert "the scale is inf under keras LossScaleOptimizer." in judgement.answer
    assert judgement.small_print[0].endswith("at scales 1 and 65536 under all of them.")
    assert findings.match(judgement.tables, judgement.tables)["matches"].all()


@pytest.mark.parametrize(
    ("where", "changes", "check"),
    [
        (("overflow", WARNS, "tf"), {"scale": 0.0}, "stays above 0"),
        (("overflow", ON_DEVICE), {"applied": 1.0}, "stays above 0"),
        (("overflow", WARNS), {"right": 0.0}, "stays above 0"),
        (("overflow", WARNS), {"reason": "trunk and head"}, "names the tensor"),
        (("overflow", RAISES), {"raised": 0}, "stays above 0"),
        (("overflow", WARNS), {"raised": 1}, "names the tensor"),
        (("zeros", WARNS, "tf"), {"infinite": 1.0}, "stays finite"),
        (("zeros", WARNS, "tf"), {"right": 0.0}, "stays finite"),
        (("overflow", PEER, "tf"), {"applied": 1.0}, "change no bit"),
        (("overflow", PEER, "tf"), {"scale": 1.0}, "reaches 0"),
        (("overflow", PEER), {"told_at": 9, "reason": "stalled"}, "reaches 0"),
        (("overflow", PEER, "pytorch"), {"finite": 1.0}, "weights NaN"),
        (("zeros", PEER, "tf"), {"infinite": 0.0}, "grows to inf"),
        (("clipping", PEER, "tf"), {"unequal": 1.0}, "a clip leads"),
        (("clipping", WARNS), {"right": 0.0}, "a clip leads"),
        (("clipping",), {"longer": 0}, "a clip leads"),
    ],
)
def test_every_check_can_fail(
    where: tuple[str, ...], changes: dict[str, Any], check: str
) -> None:
    judgement = judged(*where, **changes)
    failed = [s for s in judgement.small_print if s.startswith("Does not hold")]
    assert any(check in sentence for sentence in failed), failed


def test_a_scaler_that_does_something_else_does_not_match() -> None:
    published, own = judged(), judged("overflow", PEER, "tf", finite=1.0)
    match = findings.match(published.tables, own.tables)
    assert list(match[~match["matches"]]["scaler"]) == ["keras LossScaleOptimizer"]
