"""What tasks with absent heads share: arms are paired, compared and counted."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from harness.declarations.declare import Run
from harness.records.record import Record
from harness.tasks.absent_heads import sentences
from harness.tasks.absent_heads.tables import against_zeros, comparison, matched
from harness.tasks.multitask_digits import findings, tables
from harness.tasks.multitask_digits.metrics import METRICS
from harness.tests.makers import made_up, with_metric

FIXED = {"steps": 20, "absence": [1], "checkpoints": 2, "batch": 2, "hidden": 2}
SEEDS = 6


def records(losses: Mapping[tuple[str, float], float]) -> list[Record]:
    """Return runs of Adam by wrapper and rate, whose losses differ little by seed."""
    made = []
    for (wrapper, rate), loss in losses.items():
        optimizer = {"name": "Adam", "learning_rate": rate}
        config = {"optimizer": optimizer, "wrapper": wrapper, "presence": 0.5, **FIXED}
        settings = tables.Settings(**config)
        for seed in range(SEEDS):
            run = Run("own", "multitask_digits", vars(settings), seed)
            record = made_up(run, "pytorch", np.random.default_rng(seed))
            made.append(with_metric(record, "loss", loss * (1 + 0.01 * seed)))
    return made


def compared(losses: Mapping[tuple[str, float], float]) -> pd.DataFrame:
    cells = tables.cells(records(losses))
    return comparison(cells, lambda cell: cell.labels, METRICS["loss"].read)


def test_arms_are_compared_with_zeros_whatever_their_rates() -> None:
    table = compared({("none", 0.1): 2, ("mean", 0.3): 4, ("default", 0.01): 1})
    rows = table.set_index("wrapper")
    assert rows["ratio"].to_dict() == pytest.approx({"mean": 0.5, "default": 2})
    assert rows["arm_rate"].to_dict() == {"mean": 0.3, "default": 0.01}
    assert set(rows["zeros_rate"]) == {0.1}
    assert set(rows["seeds"]) == {SEEDS}


def test_runs_that_differ_in_more_are_not_paired() -> None:
    cells = tables.cells(records({("none", 0.1): 2, ("default", 0.1): 1}))
    assert len(list(against_zeros(cells))) == 1
    fed, other = cells
    longer = {**other.records[0].config, "steps": 40}
    changed = tables.Cell(other.backend, tables.Settings(**longer), other.records)
    assert list(against_zeros([fed, changed])) == []


@pytest.mark.parametrize(
    ("wrapped", "counted"),
    [
        (1.0, "1 of 1 cases (Adam at p = 0.5 by 50%) and with a higher one in 0."),
        (3.0, "0 of 1 cases and with a higher one in 1 (Adam at p = 0.5 by 50%)."),
    ],
)
def test_the_answer_counts_what_is_lower_and_what_is_higher(
    wrapped: float, counted: str
) -> None:
    losses = {("none", 0.1): 2.0, ("mean", 0.1): 9.0, ("default", 0.01): wrapped}
    answer = findings.judge(records(losses)).answer
    assert answer.endswith(counted) and "lower held-out loss than zeros" in answer


def test_the_answer_says_if_nothing_is_lower_or_higher() -> None:
    losses = {("none", 0.1): 2.0, ("mean", 0.1): 9.0, ("default", 0.01): 2.0}
    answer = findings.judge(records(losses)).answer
    assert "neither a lower nor a higher held-out loss than zeros (1 cases)" in answer


def test_a_run_that_diverged_is_worse_than_any_other() -> None:
    table = compared({("none", 0.1): math.inf, ("default", 0.1): 1})
    assert table["ratio"].tolist() == [math.inf]
    assert len(sentences.better(table)) == 1


def test_ranges_are_compared_by_optimizer_and_presence() -> None:
    choices = pd.DataFrame(
        {
            "optimizer.name": ["Adam", "Adam", "RMSProp", "RMSProp", "Momentum"],
            "wrapper": ["none", "default", "none", "default", "none"],
            "presence": 0.02,
            "optimizer.learning_rate": [0.01, 0.1, 0.01, 0.01, 1.0],
            "width": [3.0, 10.0, 3.0, 1.0, 100.0],
        }
    )
    sentence = sentences.of_ranges(choices)
    assert "is larger in 1 of 2 cases and smaller in 0" in sentence
    assert sentence.endswith("is wider in 1 and narrower in 1.")
    assert sentences.of_ranges(choices.drop(columns="wrapper")) == ""
    assert sentences.of_ranges(choices[choices["wrapper"] == "none"]) == ""
    same = sentences.of_ranges(choices.assign(width=1.0, **{sentences.RATE: 0.1}))
    assert same.startswith("The best rate is the same with and without the wrapper")


def test_own_ratios_match_where_intervals_overlap() -> None:
    table = compared({("none", 0.1): 2, ("default", 0.1): 1})
    other = compared({("none", 0.1): 3, ("default", 0.1): 1})
    keys = ["optimizer", "wrapper", "presence", "backend"]
    assert matched(table, table, keys)["matches"].tolist() == [True]
    assert matched(table, other, keys)["matches"].tolist() == [False]
