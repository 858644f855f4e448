"""The deep net's task: float16's limits are laws, backends agree, checks can fail."""

from __future__ import annotations

import dataclasses
import importlib.util
from functools import cache
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.records.record import Outcome, Record
from harness.tasks.deep_digits import report, task
from harness.tasks.deep_digits.task import Settings, around, count

EXPERIMENT = declare.find("mixed_precision")
RUNS = EXPERIMENT.runs("quick")
METHODS = {run.config["method"]["label"]: run for run in RUNS if run.seed == 0}


@pytest.mark.parametrize("power", [0, 3, 12])
def test_the_share_flushed_is_what_numpy_flushes_under_a_scale(power: int) -> None:
    values = 2.0 ** np.random.default_rng(0).normal(-26, 4, 5000)
    counts: dict[str, int] = {}
    count(counts, values.astype(np.float32))
    (law,) = report.flushed(counts, [power])
    made = (values.astype(np.float32) * np.float32(2.0**power)).astype(np.float16)
    assert law == np.mean(made == 0)
    assert law > 0


def test_zeros_and_infinities_are_not_counted() -> None:
    counts: dict[str, int] = {}
    count(counts, np.array([0.0, 1.0, np.inf, np.nan], np.float32))
    assert counts == {"weights/0": 1}


def test_recovery_counts_from_the_overflow_on() -> None:
    found = around([8.0, 8.0, 4.0, 4.0, 8.0, 8.0], overflow=1)
    assert found == {"before": 8, "recovery": 2}
    assert np.isnan(around([8.0, 8.0, 1.0, 2.0], overflow=1)["recovery"])


def record(run: declare.Run, backend: str, loss: float, zeros: float) -> Record:
    """Return what a run would write whose losses all are ``loss``."""
    of = Settings(**run.config)
    points = len(of.measured_at)
    series = {name: [1.0] * points for name in ("scale", "skipped")}
    series |= {"step": [float(step) for step in of.measured_at]}
    series |= {"loss": [loss] * points}
    series |= {"zero/weights": [zeros] * points}
    summary = {name: column[-1] for name, column in series.items()}
    summary |= around([4.0] * (of.steps + 1), of.overflow)
    if of.dtype == "float32":
        summary |= {"weights/-28": 60, "weights/-22": 40, "weights/-21": 1}
    return Record(
        **dataclasses.asdict(run),
        id=run.id,
        subject={"backend": backend, "device": "cpu", "lockstep": "0"},
        environment="0",
        status="ok",
        reason="",
        series=series,
        summary=summary,
    )


def judged(changed: str = "", loss: float = 0.4, zeros: float = 0.0) -> Any:
    """Judge records as expected; change those of one method on the second backend."""
    records = []
    for run in RUNS:
        label = run.config["method"]["label"]
        usual = (2.3, 0.9) if label == "fp16, no scale" else (0.4, 0.0)
        records.append(record(run, "pytorch", *usual))
        other = (loss, zeros) if label == changed else usual
        records.append(record(run, "tf", *other))
    return report.judge(records)


def test_records_in_which_scaled_losses_match_pass_every_check() -> None:
    judgement = judged()
    assert False not in dict(judgement.checks).values()


@pytest.mark.parametrize(
    ("label", "changes"),
    [
        ("fp16, no scale", {"loss": 2.3, "zeros": 0.1}),
        ("fp16, dynamic", {"zeros": 0.2}),
    ],
)
def test_a_backend_that_behaves_otherwise_fails_a_check(
    label: str, changes: dict[str, float]
) -> None:
    checks = judged(label, **changes).checks
    failed = [check for check, holds in checks if holds is False]
    assert len(failed) == 1 and "most gradients are 0" in failed[0]


@cache
def trained(backend: str, label: str) -> Outcome:
    """Return 20 steps of a smaller net; step 10 overflows."""
    framework = {"pytorch": "torch", "tf": "tensorflow"}[backend]
    for module in (framework, "sklearn"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    config = {**METHODS[label].config, "steps": 20, "checkpoints": 20, "depth": 4}
    return task.train(config, 0, backend, "cpu")


@pytest.mark.sample(1)
@pytest.mark.parametrize("label", ["fp32", "fp16, dynamic", "fp16, LogMax"])
def test_backends_take_the_same_first_steps(label: str) -> None:
    torch, tf = (trained(backend, label) for backend in ("pytorch", "tf"))
    for name in ("scale", "skipped"):
        # LogMax goes by the largest gradient, which float16 sums round differently.
        expected = pytest.approx(tf.series[name], rel=2e-2)
        assert torch.series[name] == expected, name
    # float16 forward passes round to 2^-11, in another order on each backend.
    tolerance = 1e-4 if label == "fp32" else 5e-3
    assert torch.series["loss"] == pytest.approx(tf.series["loss"], rel=tolerance)
    assert torch.series["loss"][-1] < torch.series["loss"][0]


@pytest.mark.parametrize("backend", ["pytorch", "tf"])
def test_the_infinite_loss_is_skipped_once_and_halves_the_scale(backend: str) -> None:
    found = trained(backend, "fp16, dynamic")
    assert found.summary["skipped"] == 1
    assert found.series["skipped"][10:12] == [0, 1]
    assert found.series["scale"][11] == found.summary["before"] / 2
    assert found.series["loss"][10] == found.series["loss"][11]
