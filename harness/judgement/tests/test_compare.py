"""The answer follows the records: it turns when they turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.declarations import declare
from harness.declarations.declare import Experiment
from harness.judgement.compare import compare
from harness.judgement.finding import Finding
from harness.records.files import folder
from harness.tests.synthetic import publish, without_harm


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


@pytest.fixture(scope="module")
def finding_quick(experiment: Experiment, lawful: Path) -> Finding:
    return found(experiment, lawful)


@pytest.fixture(scope="module")
def finding_std(
    experiment: Experiment, tmp_path_factory: pytest.TempPathFactory
) -> Finding:
    """What runs of scale std lead to."""
    root = tmp_path_factory.mktemp("lawful_std")
    publish(experiment, root, scale="std")
    return found(experiment, root)


def test_runs_that_follow_the_laws_pass_every_check(
    experiment: Experiment, finding_quick: Finding
) -> None:
    finding = finding_quick
    assert not any(text.startswith("Does not") for text in finding.small_print)
    assert finding.missing == []
    assert finding.question == experiment.question
    movement = finding.tables["movement"]
    assert len(movement) == 48
    assert np.allclose(movement["ratio"], 1, atol=0.02)


def test_a_law_that_is_missed_is_a_check_that_fails(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path, factor=without_harm)
    finding = found(experiment, tmp_path)
    failed = [s for s in finding.small_print if s.startswith("Does not hold")]
    assert len(failed) == 1 and "as its law predicts" in failed[0]


def test_state_that_fades_with_the_wrapper_is_a_check_that_fails(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path, keep=0.999)
    finding = found(experiment, tmp_path)
    failed = [s for s in finding.small_print if s.startswith("Does not hold")]
    assert any("keeps every bit" in sentence for sentence in failed)


def test_a_finding_has_its_verdict_and_what_belongs_beside_it(
    finding_std: Finding,
) -> None:
    finding = finding_std
    assert finding.verdicts == {"head-movement": "reproduced"}
    assert len(finding.tables["predictions"]) == 4
    after, newer = finding.notices
    assert after == "The predictions were written after these runs."
    assert "newer than the words of absent_tasks.md" in newer


def test_runs_of_scale_quick_have_effects_and_no_verdict(
    finding_quick: Finding,
) -> None:
    finding = finding_quick
    assert finding.verdict == ""
    table = finding.tables["predictions"]
    assert set(table["outcome"]) == {"not judged"}
    assert np.isfinite(table["estimate"]).all()
    assert "These runs are of scale quick" in finding.notices[0]


def test_missing_and_diverged_runs_are_said(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path, diverged=2)
    path = folder(experiment.name, True, tmp_path) / "tf.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-3]))
    finding = found(experiment, tmp_path)
    assert "tf: 3 of 48 runs are missing." in finding.missing
    assert any("2 diverged: a loss was not finite" in text for text in finding.missing)
    assert finding.provenance["runs"] == 93
    assert np.isinf(finding.tables["comparison"]["zeros"]).any()


def test_a_users_own_runs_stand_beside_the_published_ones(
    experiment: Experiment, tmp_path: Path
) -> None:
    publish(experiment, tmp_path)
    publish(experiment, tmp_path, factor=without_harm, publish=False)
    finding = found(experiment, tmp_path)
    assert finding.local is not None
    theirs, own = (
        each.tables["predictions"]["estimate"] for each in (finding, finding.local)
    )
    assert len(theirs) == len(own) == 4 and not np.allclose(theirs, own)


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
    assert "tf: 48 of 48 runs are missing." in found(experiment, tmp_path).missing
