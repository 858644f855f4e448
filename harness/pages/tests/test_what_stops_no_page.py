"""What cannot be judged, drawn or read is said on its page and stops no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from harness.declarations import declare
from harness.errors import HarnessError
from harness.figures.plot import draw
from harness.judgement.compare import compare
from harness.pages.write import EXPERIMENTS, write_findings
from harness.records.files import folder
from harness.records.metrics import Metric
from harness.tasks import part
from harness.tests.synthetic import publish

NAME, TASK = "absent_tasks", "multitask_digits"


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> declare.Experiment:
    """The only experiment that there is, with results of its own in ``tmp_path``."""
    text = (declare.EXPERIMENTS / f"{NAME}.toml").read_text("utf-8")
    monkeypatch.setattr(declare, "EXPERIMENTS", tmp_path)
    (tmp_path / f"{NAME}.toml").write_text(text, "utf-8")
    experiment = declare.read(tmp_path / f"{NAME}.toml")
    publish(experiment, tmp_path, publish=False)
    return experiment


def page_of(experiment: declare.Experiment, root: Path) -> str:
    source = replace(EXPERIMENTS, questions=lambda: [experiment])
    write_findings(root / "pages", source, root)
    return (root / "pages" / "experiments" / f"{experiment.name}.md").read_text("utf-8")


def broken(*_: Any) -> Any:
    raise KeyError("a value that nobody tried")


def test_records_that_a_task_cannot_judge(
    experiment: declare.Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part(TASK, "report"), "judge", broken)
    said = f"cannot be judged: harness.tasks.{TASK} got KeyError"
    with pytest.raises(HarnessError, match=said):
        compare(experiment, tmp_path)
    with pytest.warns(UserWarning, match=said):
        page = page_of(experiment, tmp_path)
    assert "cannot be judged" in page


def test_a_metric_that_cannot_be_read(
    experiment: declare.Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = part(TASK, "report").METRICS
    monkeypatch.setitem(metrics, "head movement", Metric(broken, "", "smaller"))
    with pytest.warns(UserWarning, match="KeyError"):
        page = page_of(experiment, tmp_path)
    assert "KeyError" in page


def test_a_figure_that_cannot_be_drawn(
    experiment: declare.Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part(TASK, "report"), "drawings", broken)
    finding = compare(experiment, tmp_path)
    assert finding is not None
    with pytest.raises(HarnessError, match=f"{TASK} cannot draw this finding"):
        draw(finding, tmp_path / "plots")
    with pytest.warns(UserWarning, match="cannot draw"):
        page = page_of(experiment, tmp_path)
    assert "cannot draw this finding" in page and finding.verdict in page


def test_damaged_records(experiment: declare.Experiment, tmp_path: Path) -> None:
    path = folder(experiment.name, False, tmp_path) / "tf.jsonl"
    path.write_text("{]\n" + path.read_text("utf-8"), "utf-8")
    with pytest.warns(UserWarning, match=r"tf\.jsonl, line 1"):
        page = page_of(experiment, tmp_path)
    assert "line 1" in page and "restore the file" in page
    # Published records beside them are shown all the same.
    publish(experiment, tmp_path)
    page = page_of(experiment, tmp_path)
    assert "Your own runs are left out:" in page
    assert "## Prediction and result" in page


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('backends = ["pytorch", "tf"]', 'backends = ["numpy"]', "backend"),
        (
            "checkpoints = 10 ",
            'checkpoints = "x" ',
            "checkpoints: Input should be a valid integer",
        ),
        ('"none", "default"]', '"none", "none"]', "expected different combinations"),
        (
            "presence = [1.0",
            'presence = ["a"',
            "presence: Input should be a valid number",
        ),
    ],
)
def test_what_a_task_cannot_run_is_refused_in_one_sentence(
    old: str, new: str, error: str, tmp_path: Path
) -> None:
    text = (declare.EXPERIMENTS / f"{NAME}.toml").read_text("utf-8")
    assert old in text
    path = tmp_path / "own.toml"
    path.write_text(text.replace(old, new), "utf-8")
    with pytest.raises(HarnessError, match=error) as refused:
        declare.read(path)
    assert "\n" not in str(refused.value)
