"""The transformer in half precision: what arms share, what they skip, what is said."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.declarations.declare import Run
from harness.records.record import Outcome
from harness.tasks.mixed_precision_text import report
from harness.tasks.mixed_precision_text.task import (
    Settings,
    make_plan,
    train,
)
from harness.tests.makers import made_up
from harness.tests.synthetic import record_of

EXPERIMENT = declare.find("mixed_precision_text")
ARMS = {
    arm["method"]["label"]: {**arm, "rate": 0.006}
    for arm in EXPERIMENT.full_arms("quick")
}


def test_both_half_precisions_can_hold_the_first_weights() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for name, weight in make_plan(Settings(**ARMS["fp32"]), 0).weights.items():
        exact = torch.tensor(weight)
        for dtype in (torch.float16, torch.bfloat16):
            # A subnormal float16 number has fewer bits than eight, and is tiny.
            normal = exact.abs() >= 2.0**-14
            assert torch.equal(exact.to(dtype).float()[normal], exact[normal]), name


def trained(label: str) -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    return train(ARMS[label], 0, "pytorch", "cpu")


@pytest.mark.sample(2)
@pytest.mark.parametrize("label", ARMS)
def test_every_arm_begins_alike_skips_what_is_infinite_and_learns(label: str) -> None:
    outcome, wide = trained(label), trained("fp32")
    bits = outcome.series["bits"]
    assert outcome.status == "ok"
    # Half precision rounds each product to eight or eleven bits.
    assert bits[0] == pytest.approx(wide.series["bits"][0], rel=2.0**-8)
    assert bits[-1] < bits[0] - 1
    assert outcome.summary["skipped"] == ARMS[label]["overflows"]


def test_an_infinite_gradient_halves_a_dynamic_scale_and_floors_the_original() -> None:
    dynamic, original = (trained(f"fp16, {n}") for n in ("dynamic", "LogMax strict"))
    assert dynamic.summary["scale"] == 2.0**15 / 2**3
    assert original.summary["scale"] == 1


def test_products_are_summed_in_float32_and_rounded_once() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from harness.tasks.mixed_precision_text.torch_model import rounded_product

    # In float16, 2048 + 1 is 2048: a sum in that dtype would lose all ones.
    ones = torch.ones(5, 1, dtype=torch.float16)
    row = torch.tensor([[2048.0, 1, 1, 1, 1]], dtype=torch.float16, requires_grad=True)
    product = rounded_product(row, ones)
    product.sum().backward()
    assert product.dtype == torch.float16 and product.item() == 2052
    assert row.grad.dtype == torch.float16 and row.grad.tolist() == [[1.0] * 5]


def test_an_arm_that_applies_an_infinite_gradient_fails_the_check() -> None:
    runs = [Run("own", "mixed_precision_text", arm, 0) for arm in ARMS.values()]
    made = [made_up(run, "pytorch", np.random.default_rng(0)) for run in runs]
    least = {**made[0].summary, "skipped": 0.0}
    applied = [dataclasses.replace(made[0], summary=least), *made[1:]]
    for given, holds in ((made, True), (applied, False)):
        assert [held for _, held in report.judge(given).checks] == [holds]


def test_a_run_that_diverged_counts_as_the_worst() -> None:
    run = Run("own", "mixed_precision_text", ARMS["fp32"], 0)
    series = {"bits": [8.0], "scale": [1.0], "skipped": [0.0]}
    lost = record_of(run, "pytorch", Outcome("diverged", "not finite", series))
    (row,) = report.judge([lost]).tables["ends"].to_dict("records")
    assert row["bits"] == np.inf
