"""Any experiment whose settings its task accepts leads to a finding and its figures.

Files are drawn at random from those that are shipped: parts of what varies, other
numbers, more values. Records are made up; nothing is trained.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from harness.declarations import declare
from harness.errors import HarnessError
from harness.figures.plot import draw
from harness.judgement.compare import compare
from harness.judgement.finding import Finding
from harness.pages.findings.page import Answered, finding_page
from harness.pages.findings.sources import EXPERIMENTS
from harness.pages.write import write_findings
from harness.records.files import folder
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks import part
from harness.tests.makers import made_up
from harness.tests.painting import paint
from lockstep.messages.optimizers.parameters import OPTIMIZERS

Content = dict[str, Any]
SHIPPED = declare.known()
NEEDED = {"Momentum": {"momentum": 0.9}, "AdamW": {"weight_decay": 0.01}}
"""Arguments that an optimizer has no default for."""


def toml(content: Mapping[str, Any]) -> str:
    """Write a declaration as TOML: tables of values that JSON and TOML share."""
    tables = {"fixed": content["fixed"], "vary": content["vary"]}
    tables |= {f"scale.{name}": scale for name, scale in content["scale"].items()}
    lines = [f"{k} = {value(v)}" for k, v in content.items() if not isinstance(v, dict)]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{k} = {value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def value(of: Any) -> str:
    """Write one value; a table stands on one line."""
    if isinstance(of, dict):
        return "{" + ", ".join(f"{k} = {value(v)}" for k, v in of.items()) + "}"
    if isinstance(of, list):
        return "[" + ", ".join(map(value, of)) + "]"
    return json.dumps(of)


def drawn(name: str, rng: np.random.Generator) -> Content:
    """Return a shipped declaration with values left out, changed and added."""
    path = declare.EXPERIMENTS / f"{name}.toml"
    content: Content = copy.deepcopy(tomllib.loads(path.read_text("utf-8")))
    content.pop("primary", None)  # It names values that may be left out.
    content |= {"kind": "illustration", "reason": "Nothing is predicted."}
    if "tune" in content:  # Choosing is tested elsewhere: here the values are arms.
        add_arms(content["vary"], content.pop("tune")["values"])
    content["backends"] = some(content["backends"], rng)
    for key, values in content["vary"].items():
        content["vary"][key] = some(values, rng)
    for scale in content["scale"].values():
        scale["seeds"] = int(rng.integers(1, 4))
        small = {"steps": 40, "overflows": 9, "zeros": 11, "checkpoints": 20}
        scale |= {k: n for k, n in small.items() if k in scale}
    for key, before in content["fixed"].items():
        # Most other numbers of checkpoints do not divide the steps.
        fits = isinstance(before, int | float) and key != "checkpoints"
        if rng.random() < 0.3 and fits:
            content["fixed"][key] = type(before)(before * rng.choice([0.5, 2, 3]))
    if content["fixed"] and rng.random() < 0.3:
        key = str(rng.choice(sorted(content["fixed"])))
        before = content["fixed"].pop(key)
        other = before * 2 if isinstance(before, int | float) else before[:2]
        content["vary"][key] = [before, other]
    add_optimizers(content["vary"], rng)
    for table in content["vary"].get("schedule", ()):
        optional = [k for k in ("min_lr", "power") if k in table]
        for key in optional if rng.random() < 0.5 else ():
            del table[key]
    return content


def some(values: list[Any], rng: np.random.Generator) -> list[Any]:
    """Return some of the values, at least one, in their order."""
    chosen = sorted(rng.permutation(len(values))[: rng.integers(1, len(values) + 1)])
    return [values[k] for k in chosen]


def add_arms(vary: Content, tuned: Mapping[str, list[float]]) -> None:
    """Make every value of a setting that is tuned an arm."""
    ((path, values),) = tuned.items()
    name, _, inner = path.partition(".")
    if inner:
        vary[name] = [{**table, inner: v} for table in vary[name] for v in values]
    else:
        vary[name] = values


def add_optimizers(vary: Content, rng: np.random.Generator) -> None:
    """Add another optimizer, or the first one at another rate, where it is a table."""
    tables = isinstance(vary.get("optimizer", [""])[0], dict)
    if tables and rng.random() < 0.5:
        name = str(rng.choice(sorted(OPTIMIZERS)))
        arm = {"name": name, "learning_rate": 0.25, **NEEDED.get(name, {})}
        vary["optimizer"].append(arm)
    if tables and rng.random() < 0.3:
        vary["optimizer"].append({**vary["optimizer"][0], "learning_rate": 0.125})


def write_records(
    experiment: declare.Experiment, root: Path, rng: np.random.Generator
) -> None:
    """Write the record of every run; some diverged, some on a GPU."""
    for backend in experiment.backends:
        path = folder(experiment.name, False, root) / f"{backend}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        runs = experiment.runs("quick")
        records = [befallen(made_up(run, backend, rng), rng) for run in runs]
        lines = [json.dumps(record.as_json()) + "\n" for record in records]
        path.write_text("".join(lines), "utf-8")


def befallen(record: Record, rng: np.random.Generator) -> Record:
    """Return a record as it is, cut off where its run diverged, or of a GPU."""
    if record.task in ("gpu_steps", "throughput"):
        on_gpu = {"device": "cuda", "device_name": "Toy 1"}
        return dataclasses.replace(record, subject={**record.subject, **on_gpu})
    if rng.random() < 0.1 and record.task in CAN_DIVERGE:
        series = {name: column[:1] for name, column in record.series.items()}
        ended: Content = {"status": "diverged", "reason": "the loss was not finite"}
        return dataclasses.replace(record, series=series, summary={}, **ended)
    return record


CAN_DIVERGE = (
    "deep_digits",
    "link_prediction",
    "mixed_precision_text",
    "movie_genres",
    "multitask_digits",
    "policy_digits",
    "recommender",
    "warm_up",
)


def answered(path: Path, content: Content, rng: np.random.Generator) -> Finding | None:
    """Return the finding of a drawn declaration; None if its task refuses it."""
    path.write_text(toml(content), "utf-8")
    try:
        experiment = declare.read(path)
    except HarnessError as refused:
        assert "\n" not in str(refused)
        return None
    write_records(experiment, path.parent, rng)
    finding = compare(experiment, path.parent)
    assert finding is not None
    page = finding_page(Answered(experiment, finding, False), {})
    assert finding.title in page
    return finding


FIRST_OF_TASK = {declare.find(name).task: name for name in reversed(SHIPPED)}
FEW = sorted(FIRST_OF_TASK.values())[::3]
"""Experiments of a third of the tasks; the soak draws from all."""


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param(
            *(name, count),
            marks=[pytest.mark.soak] * (count > 1 or name not in FEW),
        )
        for name in SHIPPED
        for count in (1, 5)
    ],
)
def test_any_declaration_that_a_task_accepts_leads_to_a_finding(
    name: str, count: int, tmp_path: Path
) -> None:
    accepted = 0
    # By name, so that a new experiment does not change what is drawn of the others.
    for seed in range(4 * count):
        if accepted == count:
            break
        rng = np.random.default_rng((zlib.crc32(name.encode()), seed))
        content = drawn(name, rng)
        finding = answered(tmp_path / f"own{seed}.toml", content, rng)
        if finding is None:
            continue
        accepted += 1
        assert "cannot be judged" not in finding.answer, (finding.answer, toml(content))
        assert finding.answer.endswith(".")
        paint(finding)
    # A fair part of what is drawn must be accepted, or the test says little.
    assert accepted == count


# -- what must not reach others --------------------------------------------------------


def publish_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "lost_updates"
) -> declare.Experiment:
    """Make an experiment the only one that there is, with results of its own."""
    monkeypatch.setattr(declare, "EXPERIMENTS", tmp_path)
    shipped = Path(__file__).parents[3] / "experiments" / f"{name}.toml"
    (tmp_path / f"{name}.toml").write_text(shipped.read_text("utf-8"), "utf-8")
    experiment = declare.read(tmp_path / f"{name}.toml")
    write_records(experiment, tmp_path, np.random.default_rng(0))
    return experiment


def pages_of(experiment: declare.Experiment, root: Path) -> str:
    source = replace(EXPERIMENTS, questions=lambda: [experiment])
    write_findings(root / "pages", source, root)
    return (root / "pages" / "experiments" / f"{experiment.name}.md").read_text("utf-8")


def broken(*_: Any) -> Any:
    raise KeyError("a value that nobody tried")


def test_records_that_a_task_cannot_judge_are_said_and_stop_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = publish_own(tmp_path, monkeypatch)
    monkeypatch.setattr(part("lost_updates", "findings"), "judge", broken)
    finding = compare(experiment, tmp_path)
    assert finding is not None and finding.verdict == ""
    assert "cannot be judged: harness.tasks.lost_updates got KeyError" in finding.answer
    assert draw(finding, tmp_path / "plots") == []
    assert "cannot be judged" in pages_of(experiment, tmp_path)


def test_metrics_that_records_do_not_have_are_said_and_stop_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = publish_own(tmp_path, monkeypatch, "gradient_norm")
    metric = Metric(broken, "ratio", "larger")
    metrics = part("gradient_norm", "findings").METRICS
    monkeypatch.setitem(metrics, "norm ratio", metric)
    finding = compare(experiment, tmp_path)
    assert finding is not None and finding.verdict == ""
    assert "cannot be judged" not in finding.answer
    assert "KeyError" in pages_of(experiment, tmp_path)


def test_a_figure_that_cannot_be_drawn_is_said_and_stops_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = publish_own(tmp_path, monkeypatch)
    monkeypatch.setattr(part("lost_updates", "figures"), "drawings", broken)
    finding = compare(experiment, tmp_path)
    assert finding is not None
    with pytest.raises(HarnessError, match="lost_updates cannot draw this finding"):
        draw(finding, tmp_path / "plots")
    with pytest.warns(UserWarning, match="cannot draw"):
        page = pages_of(experiment, tmp_path)
    assert "cannot draw this finding" in page and finding.verdict in page


def test_damaged_records_are_said_and_stop_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = publish_own(tmp_path, monkeypatch)
    path = folder(experiment.name, False, tmp_path) / "tf.jsonl"
    path.write_text("{]\n" + path.read_text("utf-8"), "utf-8")
    with pytest.warns(UserWarning, match=r"tf\.jsonl, line 1"):
        page = pages_of(experiment, tmp_path)
    assert "line 1" in page and "restore the file" in page


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('backends = ["pytorch", "tf"]', 'backends = ["keras3"]', "backend of lost_up"),
        ("checkpoints = 10", 'checkpoints = "x"', "checkpoints: expected a whole"),
        ('"fp16", "masters"]', '"fp16", "fp16"]', "expected different combinations"),
        ("ratio = [256.0", 'ratio = ["a"', "settings: expected values of the kinds"),
    ],
)
def test_what_a_task_cannot_run_is_refused_in_one_sentence(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    text = (declare.EXPERIMENTS / "lost_updates.toml").read_text("utf-8")
    assert old in text
    path = tmp_path / "own.toml"
    path.write_text(text.replace(old, new), "utf-8")
    with pytest.raises(HarnessError, match=said) as refused:
        declare.read(path)
    assert "\n" not in str(refused.value)


def test_a_file_name_that_no_page_could_have_is_refused(tmp_path: Path) -> None:
    text = (declare.EXPERIMENTS / "lost_updates.toml").read_text("utf-8")
    path = tmp_path / "<img onerror=x>.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(HarnessError, match="file name: expected letters, digits"):
        declare.read(path)


def test_runs_that_tables_cannot_tell_apart_are_counted_once_and_said(
    tmp_path: Path,
) -> None:
    path = declare.EXPERIMENTS / "lost_updates.toml"
    content = tomllib.loads(path.read_text("utf-8"))
    del content["fixed"]["weights"]
    content["vary"]["weights"] = [64, 128]
    rng = np.random.default_rng(0)
    finding = answered(tmp_path / "own.toml", content, rng)
    assert finding is not None
    assert len(finding.tables["updates"]) == 2 * 2 * 11
    assert any("differ in weights alone" in line for line in finding.missing)
