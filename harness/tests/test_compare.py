"""The answer follows the records: it turns when they turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness import declare
from harness.compare import compare
from harness.declare import Experiment
from harness.finding import Finding
from harness.records.files import folder
from harness.tests.synthetic import as_the_laws_say, publish, without_harm


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return declare.find("absent_tasks")


def found(experiment: Experiment, root: Path) -> Finding:
    finding = compare(experiment, root)
    assert finding is not None
    return finding


@pytest.fixture(scope="module")
def lawful(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results in which everything is as the laws say."""
    root = tmp_path_factory.mktemp("lawful")
    publish(experiment, root)
    return root


def test_runs_that_follow_the_laws_reproduce_the_claim(
    experiment: Experiment, lawful: Path
) -> None:
    finding = found(experiment, lawful)
    assert finding.verdict == "reproduced"
    assert "6.8 (Adam), 1.0 (Momentum) and 3.0 (RMSProp)" in finding.answer
    assert "its state stays, to the bit" in finding.answer
    assert finding.missing == []
    assert finding.question == experiment.question
    movement = finding.tables["movement"]
    assert len(movement) == 48
    assert np.allclose(movement["ratio"], 1, atol=0.02)


def test_the_answer_turns_when_zeros_do_no_harm(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path, factor=without_harm)
    finding = found(experiment, tmp_path)
    assert finding.verdict == "not supported"
    assert "no harm" in finding.answer
    assert any("Not as the law says: Adam" in text for text in finding.small_print)


def test_the_answer_turns_when_the_wrapper_saves_nothing(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path, keep=0.999)
    finding = found(experiment, tmp_path)
    assert finding.verdict == "partly"
    assert "is not supported" in finding.answer


def test_the_answer_is_partly_when_a_law_is_missed(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path, factor=lambda s: as_the_laws_say(s) * 1.2)
    assert found(experiment, tmp_path).verdict == "partly"


def test_missing_and_diverged_runs_are_said(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path, diverged=2)
    path = folder(experiment.name, True, tmp_path) / "tf.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-3]))
    finding = found(experiment, tmp_path)
    assert "tf: 3 of 120 runs are missing." in finding.missing
    assert any("2 diverged: a loss was not finite" in text for text in finding.missing)
    assert finding.provenance["runs"] == 237
    losses = finding.tables["losses"]
    assert losses["lost_without"].max() == 1


def test_only_settled_runs_of_the_fullest_scale_count(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path, scale="std")
    assert found(experiment, tmp_path).provenance["scale"] == "std"


def test_a_users_own_runs_stand_beside_the_published_ones(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path)
    publish(experiment, tmp_path, publish=False)
    own = found(experiment, tmp_path).local
    assert own is not None
    assert own.tables["match"]["matches"].all()
    assert own.small_print[0].startswith("48 of 48 intervals agree")
    assert "the verdict is the same" in own.small_print[0]
    publish(experiment, tmp_path / "b")
    publish(experiment, tmp_path / "b", factor=without_harm, publish=False)
    own = found(experiment, tmp_path / "b").local
    assert own is not None
    assert "not supported, not reproduced" in own.small_print[0]
    match = own.tables["match"]
    differ = match[~match["matches"]]
    assert {"Adam", "RMSProp"} <= set(differ["optimizer"])


def test_there_is_no_finding_before_every_combination_was_run(
    experiment: Experiment, tmp_path: Path
) -> None:
    assert compare(experiment, tmp_path) is None
    publish(experiment, tmp_path)
    (folder(experiment.name, True, tmp_path) / "tf.jsonl").unlink()
    path = folder(experiment.name, True, tmp_path) / "pytorch.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:23]))
    assert compare(experiment, tmp_path) is None
    path.write_text("".join(lines[:24]))
    assert "tf: 120 of 120 runs are missing." in found(experiment, tmp_path).missing


def test_the_same_records_give_the_same_digits(
    experiment: Experiment, lawful: Path
) -> None:
    first, second = (found(experiment, lawful) for _ in range(2))
    for name, table in first.tables.items():
        assert table.equals(second.tables[name]), name
