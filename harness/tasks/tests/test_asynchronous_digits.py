"""Asynchronous workers on digits: what follows from the methods, on short runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.declarations.declare import Run
from harness.errors import HarnessError
from harness.tasks.asynchronous_digits import report
from harness.tasks.asynchronous_digits.task import prepare, train
from harness.tests.makers import made_up, with_metric

METHODS = ("agn-delta", "agn-gradient", "downpour", "dynsgd", "easgd", "synchronous")
SHORT = {
    "method": "agn-delta",
    "workers": 4,
    "period": 5,
    "learning_rate": 0.003,
    "minibatches": 400,
    "batch": 32,
    "hidden": 16,
    "latency": 0.5,
}


def run(**changes: Any) -> Any:
    pytest.importorskip("sklearn", reason="sklearn is not installed")
    return train({**SHORT, **changes}, 0, "reference", "cpu")


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_and_repeats(method: str) -> None:
    outcome = run(method=method, minibatches=1600)
    assert outcome.status == "ok"
    assert outcome.series["accuracy"][-1] > 0.5 > outcome.series["accuracy"][0]
    assert outcome == run(method=method, minibatches=1600)


def test_a_round_of_one_step_makes_agn_and_downpour_the_same() -> None:
    assert run(period=1) == run(method="downpour", period=1)
    assert run(period=5).series != run(method="downpour", period=5).series


def test_pushes_are_stale_by_the_other_workers() -> None:
    assert run(workers=1).summary["staleness"] == 0
    assert run(method="synchronous").summary["staleness"] == 0
    assert 2 < run(workers=4).summary["staleness"] < 4


def test_weights_that_are_not_finite_are_a_result() -> None:
    outcome = run(method="downpour", learning_rate=1e38)
    assert outcome.status == "diverged"
    assert not outcome.summary


def test_tables_compare_methods_at_the_best_of_their_rates() -> None:
    rates = {0.0003: 0.5, 0.003: 0.9, 0.03: 0.7}
    records = []
    for method in ("agn-delta", "easgd"):
        for rate, accuracy in rates.items():
            config = {**SHORT, "learning_rate": rate, "method": method}
            run = Run("own", "asynchronous_digits", config, 0)
            record = made_up(run, "reference", np.random.default_rng(0))
            records.append(with_metric(record, "accuracy", accuracy))
    tables = report.judge(records).tables
    ends = tables["ends"]
    assert ends[ends["best"]]["learning_rate"].tolist() == [0.003, 0.003]


def test_there_is_no_gpu_for_numpy() -> None:
    prepare("reference", "cpu")
    with pytest.raises(HarnessError, match="only the CPU"):
        prepare("reference", "cuda")
