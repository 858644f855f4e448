"""What tasks with absent heads share: arms are paired, compared and counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from harness.declarations.declare import Run
from harness.records.record import Record
from harness.tasks.absent_heads.report import against_zeros, comparison
from harness.tasks.cells import Cell, cells
from harness.tasks.multitask_digits import report
from harness.tasks.multitask_digits.task import Settings
from harness.tests.makers import made_up, with_metric

FIXED = {"steps": 20, "absence": [1], "checkpoints": 2, "batch": 2, "hidden": 2}
SEEDS = 6


def records(losses: Mapping[tuple[str, float], float]) -> list[Record]:
    """Return runs of Adam by wrapper and rate, whose losses differ little by seed."""
    made = []
    for (wrapper, rate), loss in losses.items():
        optimizer = {"name": "Adam", "learning_rate": rate}
        config = {"optimizer": optimizer, "wrapper": wrapper, "presence": 0.5, **FIXED}
        settings = Settings(**config)
        for seed in range(SEEDS):
            run = Run("own", "multitask_digits", vars(settings), seed)
            record = made_up(run, "pytorch", np.random.default_rng(seed))
            made.append(with_metric(record, "loss", loss * (1 + 0.01 * seed)))
    return made


def cells_of(losses: Mapping[tuple[str, float], float]) -> list[Cell]:
    return cells(records(losses), Settings, lambda of: {"wrapper": of.wrapper})


def compared(losses: Mapping[tuple[str, float], float]) -> pd.DataFrame:
    return comparison(cells_of(losses), report.METRICS["loss"].read)


def test_arms_are_compared_with_zeros_whatever_their_rates() -> None:
    table = compared({("none", 0.1): 2, ("mean", 0.3): 4, ("default", 0.01): 1})
    rows = table.set_index("wrapper")
    assert rows["ratio"].to_dict() == pytest.approx({"mean": 0.5, "default": 2})
    assert rows["arm_rate"].to_dict() == {"mean": 0.3, "default": 0.01}
    assert set(rows["zeros_rate"]) == {0.1}
    assert set(rows["seeds"]) == {SEEDS}


def test_runs_that_differ_in_more_are_not_paired() -> None:
    fed, other = cells_of({("none", 0.1): 2, ("default", 0.1): 1})
    assert len(list(against_zeros([fed, other]))) == 1
    longer = replace(other, settings=replace(other.settings, steps=40))
    assert list(against_zeros([fed, longer])) == []


def test_a_run_that_diverged_is_worse_than_any_other() -> None:
    table = compared({("none", 0.1): math.inf, ("default", 0.1): 1})
    assert table["ratio"].tolist() == [math.inf]
