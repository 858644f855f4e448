"""The commit of a record already holds the prediction by which the record is judged."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import replace
from datetime import datetime
from functools import cache

import numpy as np
import pytest

from harness.declarations import declare
from harness.declarations.primaries import Primary, prediction_of
from harness.judgement import verdicts
from harness.processes.children import ROOT
from harness.records.files import RESULTS, folder, read
from harness.records.record import Record
from harness.tests.makers import made_up

JUDGED = [name for name in declare.known() if declare.find(name).primaries]


def git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


@cache
def history() -> dict[str, datetime]:
    """Return the commits of this checkout, the newest first, with their times."""
    try:
        if git("rev-parse", "--is-shallow-repository").strip() == "true":
            pytest.skip("the history of this checkout is cut off")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    pairs = (line.split() for line in git("log", "--format=%H %cI").splitlines())
    return {commit: datetime.fromisoformat(made) for commit, made in pairs}


def shown_by(record: Record) -> str | None:
    """Return the commit that a record names.

    A rebase or a squash removes such commits: the last one that was made before the run
    started then takes its place.
    """
    if record.code.commit in history():
        return record.code.commit
    start = datetime.fromisoformat(str(record.start))
    return next((commit for commit, made in history().items() if made < start), None)


@pytest.mark.parametrize("name", JUDGED)
def test_commits_of_published_records_hold_their_predictions(name: str) -> None:
    paths = folder(name, True, RESULTS).glob("*.jsonl")
    records = [r for path in paths if "." not in path.stem for r in read(path)]
    predicted = {(shown_by(r), r.prediction) for r in records if r.prediction}
    for commit, prediction in predicted:
        file = tomllib.loads(git("show", f"{commit}:experiments/{name}.toml"))
        # Not as an experiment, whose metrics must exist today.
        primaries = [Primary.model_validate(table) for table in file["primary"]]
        assert prediction_of(primaries) == prediction, commit


def test_pages_say_when_a_prediction_was_written_or_changed() -> None:
    experiment = declare.find("link_prediction")
    run = experiment.possible_runs("quick")[0]
    made = made_up(run, "pytorch", np.random.default_rng(0))
    now, other, none = (
        replace(made, prediction=each) for each in (experiment.prediction, "x", "")
    )
    for records, expected in (
        ([now], []),
        ([none], ["The predictions were written after these runs."]),
        ([none, now], ["The predictions were written after 1 of these runs."]),
        ([other, now], ["The predictions were revised after 1 of these runs."]),
        ([other], ["The predictions were revised after these runs."]),
    ):
        table = verdicts.results(experiment, records)
        notices = verdicts.notices(experiment, records, table)
        assert [n for n in notices if n.startswith("The predictions")] == expected
