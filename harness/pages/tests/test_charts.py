"""What a reader explores is the data of the figure, whatever its texts and numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.declarations import declare
from harness.pages.findings.charts import CHARTS, chart_of

HOSTILE = "</script><img src=x onerror=hacked=1>"


def content(folder: Path, rows: list[dict[str, Any]]) -> Any:
    pd.DataFrame(rows).to_csv(folder / "losses.csv", index=False)
    chart = chart_of("absent_tasks", "losses", folder)
    assert chart is not None
    return json.loads(re.findall(r"json\">(.*?)</script>", str(chart), re.DOTALL)[0])


def row(step: int, loss: float, wrapper: str = "default") -> dict[str, Any]:
    of = {"optimizer": "Adam", "task": "digit", "backend": "tf", "wrapper": wrapper}
    return {**of, "step": step, "median": loss, "low": loss, "high": loss}


def test_rows_of_a_panel_and_a_line_stay_together(tmp_path: Path) -> None:
    rows = [row(1, 2.0), row(1, 4.0, "none"), row(2, 1.0)]
    data = content(tmp_path, rows)
    (panel,) = data["panels"]
    assert panel["name"] == "Adam, digit"
    lines = [(line["name"], line["x"], line["y"]) for line in panel["series"]]
    assert lines == [
        ("with the wrapper, tf", [1, 2], [2, 1]),
        ("without the wrapper, tf", [1], [4]),
    ]


def test_numbers_that_json_cannot_hold_reach_the_reader(tmp_path: Path) -> None:
    rows = [row(1, 1e-30), row(2, float("inf")), row(3, float("nan")), row(4, 0.0)]
    (panel,) = content(tmp_path, rows)["panels"]
    assert panel["series"][0]["y"] == [1e-30, "Infinity", None, 0]


def test_a_text_cannot_leave_its_element(tmp_path: Path) -> None:
    (panel,) = content(tmp_path, [row(1, 1.0, HOSTILE)])["panels"]
    assert panel["series"][0]["name"] == f"{HOSTILE}, tf"
    chart = chart_of("absent_tasks", "losses", tmp_path)
    assert str(chart).count("<") == 4


@pytest.mark.parametrize("columns", [["wrapper", "step"], []])
def test_other_data_have_no_chart(columns: list[str], tmp_path: Path) -> None:
    frame = pd.DataFrame([row(1, 1.0)])
    frame[columns].to_csv(tmp_path / "losses.csv", index=not columns)
    assert chart_of("absent_tasks", "losses", tmp_path) is None
    assert chart_of("absent_tasks", "other", tmp_path) is None


def test_the_experiments_with_charts_are_there() -> None:
    assert {experiment for experiment, _ in CHARTS} <= set(declare.known())
