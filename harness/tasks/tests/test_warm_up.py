"""The transformer under several optimizers: rates, state, settings and sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.declarations.declare import Run
from harness.records.record import Outcome
from harness.tasks.warm_up import report, task
from harness.tasks.warm_up.task import Settings
from harness.tests.synthetic import record_of

OPTIMIZERS = ("NovoGrad", "AdamW", "SGD")
SHORT = {
    "optimizer": "NovoGrad",
    "warm_up": 0.0,
    "learning_rate": 0.01,
    "steps": 8,
    "batch": 2,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "context": 8,
    "windows": 4,
}


def run(**changes: Any) -> Outcome:
    pytest.importorskip("torch", reason="torch is not installed")
    return task.train({**SHORT, **changes}, 0, "pytorch", "cpu")


def test_the_rate_rises_in_a_line_and_then_stays() -> None:
    settings = Settings(**{**SHORT, "warm_up": 0.5, "learning_rate": 1.0})
    rates = [settings.rate(step) for step in range(8)]
    assert rates == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]
    assert Settings(**SHORT).rate(0) == SHORT["learning_rate"]


def test_adamw_keeps_two_numbers_a_weight_and_the_others_one() -> None:
    """Beside them: a norm (NovoGrad) and a count of steps (AdamW) a tensor."""
    ends = {name: run(optimizer=name).summary for name in OPTIMIZERS}
    tensors = 10
    weights = ends["SGD"]["weights"]
    sizes = {name: end["state"] - end["weights"] for name, end in ends.items()}
    assert sizes == {"NovoGrad": 4 * tensors, "AdamW": weights + 4 * tensors, "SGD": 0}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_learns_and_repeats(name: str) -> None:
    rate = {"SGD": 0.1}.get(name, 0.01)
    few, many = (run(optimizer=name, learning_rate=rate, steps=n) for n in (1, 60))
    assert many.summary["bits"] < few.summary["bits"] - 0.5
    assert run(optimizer=name, learning_rate=rate, steps=1) == few


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    outcome = run(optimizer="SGD", learning_rate=1e30)
    assert outcome.status == "diverged"
    assert "not finite after" in outcome.reason and not outcome.summary


def test_a_run_that_diverged_is_worse_than_any_and_has_no_state() -> None:
    ended = Outcome("ok", "", {}, {"bits": 4.0, "state": 400, "weights": 400})
    lost = Outcome("diverged", "the loss was not finite after 3 steps")
    made = []
    for rate, outcome in ((0.01, ended), (0.3, lost)):
        run = Run("novograd", "warm_up", {**SHORT, "learning_rate": rate}, 0)
        made.append(record_of(run, "pytorch", outcome))
    table = report.ends(made)
    assert table["best"].tolist() == [True, False]
    assert table["diverged"].tolist() == [0, 1]
    assert np.isnan(table["ratio"].iloc[1])
