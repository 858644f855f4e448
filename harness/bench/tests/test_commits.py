"""Two commits: ratios, the exit status, and commits that cannot be timed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.bench import commits
from harness.bench.command import Request
from harness.bench.declare import find
from harness.bench.process import Job, Measurement
from harness.commands.cli import app
from harness.errors import HarnessError

pytestmark = pytest.mark.skipif(
    subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True).returncode != 0,
    reason="no git history here",
)
NAME = "small_steps"


def fake(slower: float, reason: str = ""):
    """Return what stands for a process: \"ours\" takes longer on the second commit."""

    def measure(job: Job) -> Measurement:
        is_after = job.library is not None and "before" not in job.library.parts
        machine = 1.0 + job.number  # All times of a process differ alike.
        ours = 2e-3 * machine * (slower if is_after else 1.0)
        entries, reasons = [], {}
        for place, setup in enumerate(job.setups):
            seconds = {name: [1e-3 * machine] for name in setup.variants}
            seconds["ours"] = [ours * (1 + 1e-3 * job.number)]
            if reason and is_after and not place:
                reasons[setup.key] = reason
            else:
                info = {"setup": setup.key, "seconds": seconds}
                entries.append({"extra_info": info})
        return Measurement({"benchmarks": entries}, reasons)

    return measure


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch):
    """Return a function that replaces the measuring processes."""

    def replace(slower: float, reason: str = "") -> None:
        monkeypatch.setattr(commits, "measure", fake(slower, reason))

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
    assert row["low"] <= slower <= row["high"]
    assert row["after"] / row["before"] == pytest.approx(slower)
    assert row["verdict"] == {0.5: "faster", 1.0: "", 1.5: "slower"}[slower]


def test_a_limit_allows_a_slower_row(times):
    times(1.5)
    assert run("--limit", "1.6").exit_code == 0


def test_a_row_that_fails_shows_its_reason_and_the_others_go_on(times):
    times(1.0, "ValueError: no such model")
    rows = json.loads(run("--json").stdout)
    (failed,) = [row for row in rows if row["verdict"]]
    assert failed["verdict"] == "failed after: ValueError: no such model"
    assert failed["ratio"] is None
    assert all(row["ratio"] for row in rows if row is not failed)


@pytest.mark.parametrize("revisions", ["nosuch..HEAD", "HEAD..nosuch", "--all..HEAD"])
def test_a_commit_that_does_not_exist_is_one_sentence(revisions):
    request = Request([find(NAME)], "quick", ["pytorch"])
    with pytest.raises(HarnessError, match="expected two commits"):
        commits.compare_commits(revisions, request, print)


def test_a_library_that_cannot_be_timed_fails(times):
    times(1.0, "ImportError: no lockstep")
    assert run().exit_code == 1


@pytest.mark.slow
@pytest.mark.backend("pytorch")
def test_the_library_of_the_commit_is_timed(tmp_path: Path):
    library = commits.extracted("HEAD", tmp_path / "before")
    (library / "lockstep" / "pytorch" / "multitask.py").write_text("1 / 0")
    setups = [s for s in find(NAME).setups("pytorch").values()][:1]
    declared = [find(NAME).path]
    of_process = ("pytorch", 0, "cpu", "quick", setups, declared)
    for changed, reason in ((library, "ZeroDivisionError"), (None, "")):
        reasons = commits.measure(Job(*of_process, changed)).reasons
        assert [reason in each for each in reasons.values()] == [True] * bool(reason)
