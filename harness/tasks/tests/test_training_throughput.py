"""Throughput of whole steps: what is timed trains, alike on each backend."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.records.record import Record
from harness.tasks import backends
from harness.tasks.training_throughput import report, task
from harness.tasks.training_throughput.task import BATCH, LIMIT, Settings, make_plan
from harness.tests.makers import made_up

EXPERIMENT = declare.find("training_throughput")
RUNS = EXPERIMENT.runs("quick")
FRAMEWORKS = {"pytorch": "torch", "tf": "tensorflow", "keras3": "keras"}


def trainer(backend: str, workload: str, precision: str, wrapped: bool) -> Any:
    for module in (FRAMEWORKS[backend], "sklearn"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    model = backends.model("training_throughput", backend)
    settings = Settings(workload, precision, 1)
    return model.Trainer(settings, make_plan(settings, 0), "cpu", wrapped)


@cache
def losses(backend: str, workload: str, precision: str, wrapped: bool) -> list[float]:
    """Return the loss before and after ten steps."""
    subject = trainer(backend, workload, precision, wrapped)
    before = subject.loss()
    for _ in range(10):
        subject.step()
    return [before, subject.loss()]


@pytest.mark.sample(1)
@pytest.mark.parametrize("workload", BATCH)
@pytest.mark.parametrize(
    ("backend", "precision"),
    [
        *((backend, "fp32") for backend in FRAMEWORKS),
        ("pytorch", "bf16"),
        *(
            pytest.param(name, "bf16", marks=pytest.mark.soak)
            for name in ("tf", "keras3")
        ),
    ],
)
def test_bare_and_wrapped_steps_train(
    backend: str, workload: str, precision: str
) -> None:
    bare, wrapped = (
        losses(backend, workload, precision, wrapped) for wrapped in (False, True)
    )
    assert bare[0] == wrapped[0]
    assert bare[1] < bare[0] and wrapped[1] < wrapped[0]


@pytest.mark.parametrize("workload", BATCH)
@pytest.mark.parametrize("backend", ["tf", "keras3"])
def test_backends_begin_at_the_same_loss_and_train_alike(
    backend: str, workload: str
) -> None:
    one, other = (losses(b, workload, "fp32", True) for b in ("pytorch", backend))
    # Sums are made in another order, in ten steps.
    assert one == pytest.approx(other, rel=1e-2)
    assert one[0] == pytest.approx(other[0], rel=1e-3)


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_wrapped_step_clips_the_rows_of_the_batch(wrapped: bool) -> None:
    subject = trainer("pytorch", "embeddings", "fp32", wrapped)
    for _ in range(3):
        subject.step()
    norms = [weight.norm(dim=1).max().item() for weight in subject.weights.values()]
    assert (max(norms) <= LIMIT * (1 + 1e-6)) == wrapped


def test_a_run_times_every_variant() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    config = {"workload": "embeddings", "precision": "fp32", "rounds": 2}
    outcome = task.train(config, 0, "pytorch", "cpu")
    rates = [outcome.summary[f"rate/{name}"] for name in task.VARIANTS]
    assert min(rates) > 0


# -- findings --------------------------------------------------------------------------


def records(ratios: dict[tuple[str, str], float]) -> list[Record]:
    """Return records of PyTorch: a bare step takes 100 examples a second."""
    made = []
    for run in RUNS:
        record = made_up(run, "pytorch", np.random.default_rng(0))
        ratio = ratios.get((run.config["workload"], run.config["precision"]), 0.9)
        rates = {"rate/bare": 100.0, "rate/wrapped": 100 * ratio}
        rates["rate/bare again"] = 101.0
        summary = rates if record.summary else {}
        made.append(dataclasses.replace(record, summary=summary))
    return made


def test_the_table_has_the_ratio_of_each_wrapper() -> None:
    judgement = report.judge(records({("embeddings", "bf16"): 0.125}))
    rows = judgement.tables["rates"].set_index(["workload", "precision"])
    assert rows.loc[("embeddings", "bf16"), "ratio"] == pytest.approx(0.125)
    assert rows.loc[("transformer", "bf16"), "ratio"] == pytest.approx(0.9)
