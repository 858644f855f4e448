"""The page on planning: figure and table follow the planner and the experiment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.declarations import declare
from harness.judgement.finding import Finding
from harness.pages.findings import planner
from harness.pages.findings.page import Answered
from harness.tasks.worker_throughput import findings
from harness.tests.makers import made_up


def answered() -> Answered:
    """Return the experiment with made-up records."""
    experiment = declare.find(planner.EXPERIMENT)
    records = [
        made_up(run, "pytorch", np.random.default_rng(0))
        for run in experiment.runs("quick")
    ]
    judgement = findings.judge(records)
    names = (experiment.name, experiment.task, experiment.title, experiment.question)
    finding = Finding(*names, verdict="", missing=[], provenance={}, **vars(judgement))
    return Answered(experiment, finding, True)


def test_the_figure_goes_to_a_thousand_workers(tmp_path: Path) -> None:
    inserts = planner.planner_inserts(tmp_path, [])
    assert "generated/planner/plan.dark.svg" in inserts["planner_figure"]
    data = pd.read_csv(tmp_path / "plan.csv")
    assert data["workers"].max() == 1000
    setting = planner.SETTINGS[planner.DRAWN]
    last = data[(data["mode"] == "period 10") & (data["workers"] == 1000)]
    expected = setting.steps(10, 1000)
    # The file has six digits.
    assert last["steps_per_second"].item() == pytest.approx(expected, rel=1e-5)


def test_without_records_the_page_says_so_and_the_center_takes_no_time(
    tmp_path: Path,
) -> None:
    inserts = planner.planner_inserts(tmp_path, [])
    assert inserts["planner_measured"] == "Not measured yet.\n"
    plain = planner.SETTINGS[planner.DRAWN].row(10, planner.WORKERS)
    assert f">{plain['knee']:.2g}<" in inserts["planner_table"]


def test_the_centers_time_is_that_of_the_large_model(tmp_path: Path) -> None:
    experiment = answered()
    assert experiment.finding is not None
    large = experiment.finding.tables["center"].iloc[-1]
    inserts = planner.planner_inserts(tmp_path, [experiment])
    milliseconds = 1000 / large["center"] / large["model_mb"]
    assert f"takes {milliseconds:.2g} ms for each MB" in inserts["planner_table"]
