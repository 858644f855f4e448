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
from harness.pages.findings.planner_measured import ONE_MACHINE, SLOW_LINK
from harness.tasks import part
from harness.tests.makers import made_up


def answered(name: str = ONE_MACHINE) -> Answered:
    """Return an experiment with made-up records."""
    experiment = declare.find(name)
    records = [
        made_up(run, "pytorch", np.random.default_rng(0))
        for run in experiment.runs("quick")
    ]
    judgement = part(experiment.task, "findings").judge(records)
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
    assert inserts["planner_slow"] == "Not measured yet.\n"
    plain = planner.SETTINGS[planner.DRAWN].row(10, planner.WORKERS)
    assert f">{plain['knee']:.2g}<" in inserts["planner_table"]


def test_the_centers_time_is_that_of_the_large_model(tmp_path: Path) -> None:
    experiment = answered()
    assert experiment.finding is not None
    large = experiment.finding.tables["center"].iloc[-1]
    inserts = planner.planner_inserts(tmp_path, [experiment])
    milliseconds = 1000 / large["center"] / large["model_mb"]
    assert f"takes {milliseconds:.2g} ms for each MB" in inserts["planner_table"]


def test_one_machine_and_slow_links_are_drawn_side_by_side(tmp_path: Path) -> None:
    both = [answered(ONE_MACHINE), answered(SLOW_LINK)]
    inserts = planner.planner_inserts(tmp_path, both)
    assert inserts["planner_slow"].startswith(both[1].answer)
    assert "generated/planner/links.dark.svg" in inserts["planner_slow"]
    data = pd.read_csv(tmp_path / "links.csv")
    assert set(data["link"]) == {"one machine", "slow links"}
    # Those that only one of them has cannot be compared.
    assert set(data["workers"]) == {2, 4}
    assert both[1].finding is not None
    steps = both[1].finding.tables["steps"]
    shown = data[data["link"] == "slow links"]
    assert shown["steps"].to_numpy() == pytest.approx(steps["steps"], rel=1e-5)


def test_slow_links_alone_are_not_compared(tmp_path: Path) -> None:
    inserts = planner.planner_inserts(tmp_path, [answered(SLOW_LINK)])
    assert "links" not in {path.stem for path in tmp_path.iterdir()}
    assert inserts["planner_measured"] == "Not measured yet.\n"
