"""The deep net's task: float16's limits are laws, backends agree, checks can fail."""

from __future__ import annotations

import importlib.util
from functools import cache

import numpy as np
import pytest

from harness.declarations import declare
from harness.records.record import Outcome
from harness.tasks.deep_digits import report, task
from harness.tasks.deep_digits.task import Settings, around, count
from harness.tests.synthetic import record_of

RUNS = declare.find("mixed_precision").runs("quick")
METHODS = {run.config["method"]["label"]: run for run in RUNS if run.seed == 0}


@pytest.mark.parametrize("power", [0, 3, 12])
def test_the_share_flushed_is_what_numpy_flushes_under_a_scale(power: int) -> None:
    values = 2.0 ** np.random.default_rng(0).normal(-26, 4, 5000)
    counts: dict[str, int] = {}
    uncounted = [0.0, np.inf, np.nan]
    count(counts, np.array([*values, *uncounted], np.float32))
    (law,) = report.flushed(counts, [power])
    made = (values.astype(np.float32) * np.float32(2.0**power)).astype(np.float16)
    assert law == np.mean(made == 0)
    assert law > 0


def test_recovery_counts_from_the_overflow_on() -> None:
    found = around([8.0, 8.0, 4.0, 4.0, 8.0, 8.0], overflow=1)
    assert found == {"before": 8, "recovery": 2}
    assert np.isnan(around([8.0, 8.0, 1.0, 2.0], overflow=1)["recovery"])


@pytest.mark.parametrize(("recovery", "holds"), [(0.0, True), (1e6, False)])
def test_a_scale_that_is_not_back_in_its_window_fails_the_check(
    recovery: float, holds: bool
) -> None:
    made = []
    for run in METHODS.values():
        points = Settings(**run.config).measured_at
        series = {name: [1.0] * len(points) for name in ("loss", "scale", "skipped")}
        summary = {"before": 4.0, "recovery": recovery, "skipped": 1.0}
        summary |= {"weights/-28": 60, "weights/-22": 40}
        made.append(record_of(run, "tf", Outcome("ok", "", series, summary)))
    assert [held for _, held in report.judge(made).checks] == [holds]


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
