"""Nets at every rate of a sweep: stable ranges, and what LARC does to steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.records.record import Outcome
from harness.tasks.stable_rates import report, task
from harness.tasks.stable_rates.report import stable_range
from harness.tasks.stable_rates.task import IMAGES, Settings, make_plan
from harness.tests.synthetic import record_of

LARC = {"larc_eta": 0.001, "larc_mode": "clip"}
SHORT = {
    "method": {"label": "none"},
    "batch": 256,
    "epochs": 2,
    "depth": 2,
    "width": 16,
    "momentum": 0.9,
    "rates": [0.03, 1e6, 1e7],
    "margin": 0.05,
}


def run(**changes: Any) -> Outcome:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("sklearn", reason="sklearn is not installed")
    return task.train({**SHORT, **changes}, 0, "pytorch", "cpu")


@pytest.mark.parametrize(
    ("accuracies", "ends"),
    [
        ([0.5, 0.92, 0.95, 0.91, 0.1], (1, 3)),
        ([0.9, 0.1, 0.9, 0.9, 0.1], (0, 0)),  # What lies apart is not in it.
        ([0.1, 0.1, 0.1, 0.5, 0.9], (4, 4)),
        ([0.9, 0.9, 0.9, 0.9, 0.9], (0, 4)),
        ([0.1, 0.1, 0.8, 0.5, 0.1], None),  # None is good.
    ],
)
def test_a_range_is_what_lies_around_the_best_rate_above_the_bar(
    accuracies: list[float], ends: tuple[int, int] | None
) -> None:
    rates = [1.0, 2.0, 3.0, 4.0, 5.0]
    expected = (rates[ends[0]], rates[ends[1]]) if ends else (0.0, 0.0)
    assert stable_range(rates, accuracies) == expected


@pytest.mark.parametrize(("right", "width"), [(324, 3 / 2), (323, 1)])
def test_an_accuracy_that_is_the_bar_is_in_the_range(right: int, width: float) -> None:
    """90% of 360 images are 324 of them, also where float32 rounds a share down."""
    shares = np.array([0, right, 344, 0], np.float32) / np.float32(360)
    low, high = stable_range([1.0, 2.0, 3.0, 4.0], shares.tolist())
    assert high / low == pytest.approx(width)


def test_widths_are_medians_on_a_logarithmic_scale() -> None:
    """One range is a single rate, the other four steps wide."""
    made = []
    for seed, good in ((0, 1), (1, 5)):
        run = next(r for r in declare.find("larc").runs("std") if r.seed == seed)
        shares = [0.1] * 3 + [0.9] * good + [0.1] * (7 - good)
        series = {"rate": run.config["rates"], "loss": shares, "accuracy": shares}
        made.append(record_of(run, "pytorch", Outcome("ok", "", series)))
    (row,) = report.judge(made).tables["ranges"].to_dict("records")
    assert row["width"] == pytest.approx(10)  # Between 1 and 100.


def test_every_epoch_is_a_permutation_and_methods_share_a_plan() -> None:
    pytest.importorskip("sklearn", reason="sklearn is not installed")
    plan = make_plan(Settings(**{**SHORT, "batch": 100}), seed=3)
    assert len(plan.training.digit) == IMAGES
    order = plan.batches.ravel()
    assert plan.batches.shape == (2 * IMAGES // 100, 100)
    assert sorted(order[:IMAGES]) == list(range(IMAGES))
    other = make_plan(Settings(**{**SHORT, "method": {"label": "a"}}), seed=3)
    assert np.array_equal(other.batches.ravel()[: 2 * 1280], order[: 2 * 1280])
    assert all(map(np.array_equal, plan.weights, other.weights))


def test_rates_that_are_too_high_are_results_and_the_next_rate_starts_afresh() -> None:
    outcome = run()
    assert outcome.status == "ok"
    assert outcome.series["accuracy"][0] > 0.3 > max(outcome.series["accuracy"][1:])
    alone = run(rates=[0.03, 0.1])
    assert alone.series["loss"][0] == outcome.series["loss"][0]


def test_in_mode_clip_rates_above_the_limit_all_train_alike() -> None:
    """A step is eta times the weight's norm long, in the gradient's direction."""
    method = {"label": "LARC", "larc_params": LARC}
    outcome = run(method=method, rates=[0.003, 100.0, 200.0])
    low, *high = outcome.series["loss"]
    assert high[0] == pytest.approx(high[1], rel=1e-3)
    assert abs(low - high[0]) > 1e-3 * low
