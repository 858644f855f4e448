"""Two commits: ratios, the exit status, and commits that cannot be timed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from harness.bench import commits, measure
from harness.bench.declare import find
from harness.bench.measure import Job, Request, missing_jobs, run_all
from harness.commands.cli import app
from harness.errors import HarnessError
from harness.tests.benched import write_times

pytestmark = pytest.mark.skipif(
    subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True).returncode != 0,
    reason="no git history here",
)
NAME = "small_steps"


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch):
    """Return a function that replaces the measuring processes."""

    def replace(slower: float, reason: str = "") -> None:
        """Let ours take longer, or one setup fail, on the second commit."""

        def timed(job: Job, ended, children) -> None:
            after = job.out.name == "after"
            machine = 1.0 + job.number  # All times of a process differ alike.
            ours = 2 * machine * (slower if after else 1) * (1 + 1e-3 * job.number)
            factors = {"ours": ours, "bare": machine, "foreach": machine}
            write_times(find(NAME), job.out, factors, spread=0, number=job.number)
            for setup in job.setups:
                failed = after and setup.config["wrapper"] == "multitask"
                ended(setup, reason if failed else "")

        monkeypatch.setattr(measure, "measure", timed)

    return replace


def run(*arguments: str):
    options = (NAME, "--backend", "pytorch")
    return CliRunner().invoke(app, ["compare", "HEAD..", *options, *arguments])


@pytest.mark.parametrize("slower", [0.5, 1.0, 1.5])
def test_the_ratio_is_that_of_the_library_and_not_of_the_machine(slower, times):
    times(slower)
    ended = run("--json")
    assert ended.exit_code == (slower > 1)
    rows = [row for row in json.loads(ended.stdout) if row["what"] == "multitask"]
    (row,) = rows
    assert row["ratio"] == pytest.approx(slower)
    assert row["low"] <= slower * (1 + 1e-12) and slower <= row["high"] * (1 + 1e-12)
    assert row["after"] / row["before"] == pytest.approx(slower)
    assert row["verdict"] == {0.5: "faster", 1.0: "", 1.5: "slower"}[slower]


def test_a_limit_allows_a_slower_row(times):
    times(1.5)
    assert run("--limit", "1.6").exit_code == 0


def test_a_row_that_fails_shows_its_reason_and_the_others_go_on(times):
    times(1.0, "ValueError: no such model")
    ended = run("--json")
    assert ended.exit_code == 1
    rows = json.loads(ended.stdout)
    (failed,) = [row for row in rows if row["what"] == "multitask"]
    assert failed["verdict"] == "failed after: ValueError: no such model"
    assert failed["ratio"] is None
    assert all(row["ratio"] for row in rows if row is not failed)


@pytest.mark.parametrize("revisions", ["nosuch..HEAD", "HEAD..nosuch", "--all..HEAD"])
def test_a_commit_that_does_not_exist_is_one_sentence(revisions):
    request = Request([find(NAME)], "quick", ["pytorch"])
    with pytest.raises(HarnessError, match="expected two commits"):
        commits.compare_commits(revisions, request, Console())


@pytest.mark.slow
@pytest.mark.backend("pytorch")
def test_the_library_of_the_commit_is_timed(tmp_path: Path):
    library = commits.library_of("HEAD", tmp_path / "before")
    (library / "lockstep" / "pytorch" / "multitask.py").write_text("1 / 0")
    request = Request([find(NAME)], "quick", ["pytorch"], root=tmp_path)
    (job,) = missing_jobs(dataclasses.replace(request, again=True))
    job = job.model_copy(update={"setups": job.setups[:1]})
    (failure,) = run_all([job.model_copy(update={"library": library})], 1, Console())
    assert "ZeroDivisionError" in failure.reason
    assert not run_all([job], 1, Console())
