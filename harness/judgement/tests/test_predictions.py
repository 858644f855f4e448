"""The commit of a record already holds the prediction by which the record is judged."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from harness.declarations import declare
from harness.judgement import verdicts
from harness.processes.children import ROOT
from harness.records.files import RESULTS, folder, read
from harness.records.record import Code, Record
from harness.tests.makers import made_up

JUDGED = [name for name in declare.known() if not declare.find(name).reason]


def git(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        ["git", *words], cwd=cwd, capture_output=True, text=True, check=True
    )
    return done.stdout


def require_history(checkout: Path) -> None:
    """Skip where git or the history of the project is not there."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    try:
        shallow = git("rev-parse", "--is-shallow-repository", cwd=checkout).strip()
    except subprocess.CalledProcessError:
        pytest.skip("this is no git checkout")
    if shallow == "true":
        pytest.skip("the history of this checkout is cut off")


def predicted_at(commit: str, name: str, checkout: Path, scratch: Path) -> str:
    """Return the prediction that an experiment's file made at a commit."""
    text = git("show", f"{commit}:experiments/{name}.toml", cwd=checkout)
    path = scratch / commit / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return declare.read(path).prediction


def history_of(checkout: Path) -> dict[str, datetime]:
    """Return the commits of a checkout, the newest first, and when they were made."""
    lines = git("log", "--format=%H %cI", cwd=checkout).splitlines()
    pairs = (line.split() for line in lines)
    return {commit: datetime.fromisoformat(made) for commit, made in pairs}


def shown_by(record: Record, history: dict[str, datetime]) -> str | None:
    """Return a commit of the history that shows what was predicted before a run.

    It is the commit that the record names. A rebase or a squash removes such commits:
    the last one that was made before the run started then takes its place.
    """
    if record.code.commit is None:
        return None
    if record.code.commit in history:
        return record.code.commit
    if record.start is None:
        return None
    start = datetime.fromisoformat(record.start)
    return next((commit for commit, made in history.items() if made < start), None)


def late(
    name: str, records: Sequence[Record], checkout: Path, scratch: Path
) -> list[str]:
    """Return the ids of records that name a prediction their commit does not hold.

    Records without a prediction are no part of this: pages say that the prediction was
    written after them.
    """
    found = []
    history = history_of(checkout)
    held: dict[str, str] = {}
    for record in records:
        if not record.prediction:
            continue
        commit = shown_by(record, history)
        if commit is None:
            found.append(record.id)
            continue
        if commit not in held:
            held[commit] = predicted_at(commit, name, checkout, scratch)
        if held[commit] != record.prediction:
            found.append(record.id)
    return found


@pytest.mark.parametrize("name", JUDGED)
def test_commits_of_published_records_hold_their_predictions(
    name: str, tmp_path: Path
) -> None:
    require_history(ROOT)
    home = folder(name, True, RESULTS)
    records = [record for path in sorted(home.glob("*.jsonl")) for record in _of(path)]
    assert late(name, records, ROOT, tmp_path) == []
    without = [record for record in records if not record.prediction]
    if without:
        experiment = declare.find(name)
        table = verdicts.results(experiment, records)
        said = " ".join(verdicts.notices(experiment, records, table))
        assert "The prediction was written after" in said


def _of(path: Path) -> list[Record]:
    """Return the records of a file; beside them lie environments and code."""
    return [] if "." in path.stem else read(path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of its own that holds one experiment."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    repository = tmp_path / "repository"
    (repository / "experiments").mkdir(parents=True)
    git("init", "--quiet", cwd=repository)
    commit(repository, text_of())
    return repository


def text_of() -> str:
    return (declare.EXPERIMENTS / "link_prediction.toml").read_text("utf-8")


def commit(repository: Path, text: str) -> str:
    """Commit the experiment's file; return the commit."""
    path = repository / "experiments" / "link_prediction.toml"
    path.write_text(text, "utf-8")
    git("add", ".", cwd=repository)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    git(*who, "commit", "--quiet", "-m", "x", cwd=repository)
    return git("rev-parse", "HEAD", cwd=repository).strip()


def record_at(commit: str | None, prediction: str) -> Record:
    run = declare.find("link_prediction").possible_runs("quick")[0]
    made = made_up(run, "pytorch", np.random.default_rng(0))
    return replace(made, code=Code(commit, False, "0" * 16), prediction=prediction)


def test_a_prediction_that_was_changed_after_the_run_is_noticed(
    checkout: Path, tmp_path: Path
) -> None:
    first = git("rev-parse", "HEAD", cwd=checkout).strip()
    before = declare.find("link_prediction").prediction
    record = record_at(first, before)
    assert late("link_prediction", [record], checkout, tmp_path) == []
    text = text_of().replace("high = -0.01", "high = -0.05", 1)
    changed = commit(checkout, text)
    after = declare.read(checkout / "experiments" / "link_prediction.toml")
    assert after.prediction != before
    # A record of the old commit cannot have been judged by the new prediction.
    forged = record_at(first, after.prediction)
    assert late("link_prediction", [forged], checkout, tmp_path) == [forged.id]
    honest = record_at(changed, after.prediction)
    assert late("link_prediction", [honest], checkout, tmp_path) == []
    nowhere = record_at(None, after.prediction)
    assert late("link_prediction", [nowhere], checkout, tmp_path) == [nowhere.id]


def test_the_history_before_the_run_stands_in_for_a_commit_that_is_gone(
    checkout: Path, tmp_path: Path
) -> None:
    predicted = declare.find("link_prediction").prediction
    gone = record_at("0" * 40, predicted)
    for start, wanted in (
        ("2090-01-01T00:00:00Z", []),
        ("2000-01-01T00:00:00Z", [gone.id]),
        (None, [gone.id]),
    ):
        record = replace(gone, start=start)
        assert late("link_prediction", [record], checkout, tmp_path) == wanted
    commit(checkout, text_of().replace("high = -0.01", "high = -0.05", 1))
    later = replace(gone, start="2090-01-01T00:00:00Z")
    assert late("link_prediction", [later], checkout, tmp_path) == [gone.id]


def said(records: Sequence[Record]) -> str:
    experiment = declare.find("link_prediction")
    table = verdicts.results(experiment, records)
    return " ".join(verdicts.notices(experiment, records, table))


def test_pages_say_when_a_prediction_was_written_or_changed() -> None:
    now = declare.find("link_prediction").prediction
    asked, other, none = (record_at("c", each) for each in (now, "another", ""))
    assert "prediction was" not in said([asked])
    assert "The prediction was written after the runs." in said([none])
    assert "The prediction was written after 1 of 2 runs." in said([none, asked])
    assert "The prediction was changed after 1 of 2 runs" in said([other, asked])
