"""The policies' task: shares become steps, laws hold, backends agree."""

from __future__ import annotations

import dataclasses
import importlib.util
from functools import cache
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.records.record import Outcome, Record
from harness.tasks.policy_digits import findings, laws
from harness.tasks.policy_digits.settings import Settings
from lockstep.messages.errors import LockstepError, OutOfRangeError

EXPERIMENT = declare.find("learning_rate_policies")
POLY = {"label": "poly", "policy": "poly_decay", "decay_steps": 1.0}


def settings(schedule: dict[str, Any], **changes: Any) -> Settings:
    base = {"mode": "default", "rate": 0.5, "steps": 200, "checkpoints": 4, "batch": 8}
    return Settings(**{"schedule": schedule, **base, **changes})


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("warm_up", [0.1, 0.4, 0.9])
def test_the_peak_of_poly_decay_is_its_law(power: float, warm_up: float) -> None:
    of = settings({**POLY, "power": power, "warmup_steps": warm_up}, steps=20_000)
    rates = laws.rates(of, np.arange(20_000.0))
    # The law's step is within half a step of a whole one.
    assert rates.max() / of.rate == pytest.approx(laws.peak(of), rel=1e-4)
    assert laws.peak(of) < 1


def test_every_law_of_the_experiment_is_the_reference_s_peak() -> None:
    for run in EXPERIMENT.runs("quick"):
        of = Settings(**run.config)
        law = laws.peak(of)
        if not np.isnan(law):
            peak = laws.rates(of, np.arange(float(of.steps))).max() / of.rate
            # Whole steps: the peak may lie between two of them.
            assert peak == pytest.approx(law, rel=1e-3), of.label


def test_shares_become_whole_steps() -> None:
    piecewise = {"label": "a", "policy": "piecewise_constant", "decay_rates": [0.1]}
    assert settings({**piecewise, "boundaries": [0.5]}).arguments["boundaries"] == [100]
    transformer = {"label": "b", "policy": "transformer_policy", "d_model": 16}
    of = settings({**transformer, "warmup_steps": 0.1})
    # Rounding to float32.
    assert laws.rates(of, np.arange(200.0)).max() == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mode": "strickt"}, "did you mean 'strict'"),
        ({"checkpoints": 3}, "a number that divides steps"),
        ({"schedule": {"label": "a", "policy": "poly"}}, "poly_decay"),
        ({"schedule": {**POLY, "decay_step": 1.0}}, "did you mean 'decay_steps'"),
        ({"schedule": {"policy": "fixed_lr"}}, "schedule.label: expected a text"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises((OutOfRangeError, LockstepError), match=said):
        settings(**{"schedule": POLY, **changes})


# -- checks ----------------------------------------------------------------------------


def record(run: declare.Run, backend: str, **changes: Any) -> Record:
    """Return what a backend that follows the reference to the bit would write."""
    of = Settings(**run.config)
    rates = laws.rates(of, np.arange(of.steps + 1.0))
    series = {
        "step": [float(step) for step in of.measured_at],
        "rate": rates[of.measured_at].tolist(),
        "loss": [2 / (1 + step) + 0.01 * run.seed for step in of.measured_at],
    }
    summary = {"loss": 0.1, "peak": rates.max(), "peak_step": int(rates.argmax())}
    subject = {"backend": backend, "device": "cpu", "lockstep": "0"}
    made = Record(
        **dataclasses.asdict(run),
        id=run.id,
        subject=subject,
        environment="0",
        status="ok",
        reason="",
        series=series,
        summary=summary,
    )
    return dataclasses.replace(made, **changes)


def judged(backend_changes: dict[str, Any] | None = None, only: str = "") -> Any:
    """Judge synthetic records; change those of one schedule on the second backend."""
    records = []
    for run in EXPERIMENT.runs("quick"):
        records.append(record(run, "pytorch"))
        changed = run.config["schedule"]["label"] == only
        records.append(record(run, "tf", **(backend_changes or {}) if changed else {}))
    return findings.judge(records)


def test_records_that_follow_the_reference_pass_every_check() -> None:
    judgement = judged()
    assert "peaks at 0.37 of its rate (law: 0.37)" in judgement.answer
    assert not any(line.startswith("Does not") for line in judgement.small_print)
    assert findings.match(judgement.tables, judgement.tables)["matches"].all()


@pytest.mark.parametrize(
    ("label", "check"),
    [
        ("poly", "decays during its warm-up"),
        ("poly, decay waits", "waits for the warm-up"),
        ("inverse poly", "inv_poly_decay"),
        ("cosine", "cosine_decay"),
        ("piecewise", "piecewise_constant"),
        ("transformer", "transformer_policy"),
        ("exp", "rates agree to rounding"),
    ],
)
def test_a_host_with_other_rates_fails_a_check(label: str, check: str) -> None:
    points = 21
    series = {"step": [0.0] * points, "rate": [0.3] * points, "loss": [0.1] * points}
    changes = {"series": series, "summary": {"loss": 0.1, "peak": 0.25, "peak_step": 0}}
    judgement = judged(changes, label)
    failed = [s for s in judgement.small_print if s.startswith("Does not hold")]
    assert any(check in sentence for sentence in failed), failed


@pytest.mark.parametrize(("factor", "sentences"), [(1.04, 0), (1.06, 2)])
def test_losses_of_a_seed_that_differ_on_two_hosts_are_named(factor, sentences) -> None:
    records = []
    for run in EXPERIMENT.runs("quick"):
        one = record(run, "pytorch")
        losses = [factor * loss for loss in one.series["loss"]]
        series = {**one.series, "loss": losses}
        changed = run.config["schedule"]["label"] == "cosine"
        records += [one, record(run, "tf", **({"series": series} if changed else {}))]
    small_print = findings.judge(records).small_print
    apart = [s for s in small_print if "on tf and pytorch differ by up to 5.7%" in s]
    assert len(apart) == sentences
    assert all(s.startswith("cosine (") for s in apart)


# -- backends ------------------------------------------------------------------------


@cache
def trained(backend: str, label: str, mode: str) -> Outcome:
    framework = {"pytorch": "torch", "tf": "tensorflow"}[backend]
    for module in (framework, "sklearn"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    from harness.tasks.policy_digits import training

    for run in EXPERIMENT.runs("quick"):
        same = run.config["schedule"]["label"] == label, run.config["mode"] == mode
        if all(same):
            config = {**run.config, "steps": 40, "checkpoints": 20}
            return training.train(config, 0, backend, "cpu")
    raise AssertionError(label)


@pytest.mark.parametrize("label", ["poly", "inverse poly", "fixed"])
@pytest.mark.parametrize("mode", ["default", "strict"])
def test_backends_write_the_same_rates_and_learn_the_same(
    label: str, mode: str
) -> None:
    torch, tf = (trained(backend, label, mode) for backend in ("pytorch", "tf"))
    # Rates are float32; the backends round pow and cos differently.
    assert torch.series["rate"] == pytest.approx(tf.series["rate"], rel=1e-6)
    # 40 steps of a linear model: rounding.
    assert torch.series["loss"] == pytest.approx(tf.series["loss"], rel=1e-4)
    assert torch.series["loss"][-1] < torch.series["loss"][0]


@pytest.mark.parametrize("backend", ["pytorch", "tf"])
def test_a_host_takes_each_step_at_the_rate_of_the_reference(backend: str) -> None:
    outcome = trained(backend, "cosine", "strict")
    run = next(
        run
        for run in EXPERIMENT.runs("quick")
        if (run.config["schedule"]["label"], run.config["mode"]) == ("cosine", "strict")
    )
    of = Settings(**{**run.config, "steps": 40})
    expected = laws.rates(of, np.arange(0, 41.0, 2))
    assert outcome.series["rate"] == pytest.approx(expected.tolist(), rel=1e-6)
