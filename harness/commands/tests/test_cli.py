"""The command line: what it prints for programs, and what it passes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from harness.commands import cli
from harness.declarations import declare
from harness.errors import HarnessError
from harness.runs import run


def said(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_comparison_as_json_holds_answer_verdict_and_tables() -> None:
    found = json.loads(said("compare", "link_prediction", "--json"))
    assert found["verdict"] and found["answer"].endswith(".")
    assert found["small_print"] and len(found["tables"]["ends"]) > 1
    assert {"claim", "outcome", "p"} <= found["tables"]["predictions"][0].keys()
    assert found["provenance"]["backends"]


@pytest.mark.parametrize("where", ["a file", "below a file"])
def test_a_folder_that_cannot_be_made_is_one_sentence(
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "file"
    path.write_text("kept", "utf-8")
    out = path if where == "a file" else path / "plots"
    monkeypatch.setattr(sys, "argv", ["harness", "plot", "larc", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"harness: {out}: expected a path that can be used, got ")
    assert len(said.splitlines()) == 1 and path.read_text("utf-8") == "kept"


def test_a_schedule_is_that_of_the_installed_command() -> None:
    arguments = ("poly_decay", "learning_rate=0.1", "decay_steps=100", "--steps", "7")
    assert "poly_decay(learning_rate=0.1" in said("schedule", *arguments)
    assert "usage: lockstep schedule" in said("schedule", "--help")


def test_a_run_takes_seeds_and_names_the_next_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[run.Request] = []

    def sweep(experiments: Any, request: run.Request) -> list[Any]:
        assert [experiment.name for experiment in experiments] == ["absent_tasks"]
        requests.append(request)
        return []

    monkeypatch.setattr(run, "sweep", sweep)
    lines = said("run", "absent_tasks", "--seeds", "2", "--jobs", "3").splitlines()
    assert (requests[0].seeds, requests[0].jobs) == (2, 3)
    assert lines[-1].startswith("Next: ")
    assert "-m harness compare absent_tasks" in lines[-1]


@pytest.mark.parametrize(("words", "scale"), [([], "std"), (["--quick"], "quick")])
def test_benchmarks_as_json_are_their_records(
    words: list[str], scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.bench import measure

    requests = []

    file = tmp_path / "file.json"
    file.write_text('{"benchmarks": []}', "utf-8")

    def bench(request: Any, console: Console) -> tuple[list[Path], list[Any]]:
        requests.append(request)
        console.print("this is no JSON and goes to standard error")
        return [file], []

    monkeypatch.setattr(measure, "bench", bench)
    printed = json.loads(said("bench", "larc_overhead", "--json", *words))
    assert printed == [{"benchmarks": []}]
    assert [(r.benchmarks[0].name, r.scale) for r in requests] == [
        ("larc_overhead", scale)
    ]


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("tpu", "expected the device 'tpu', got a name that is no device type; use"),
        ("xla", "expected the device 'xla', got Could not run 'aten::empty"),
    ],
)
def test_a_device_that_torch_does_not_know_is_one_short_sentence(
    device: str, said: str
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from harness.tasks import backends

    with pytest.raises(HarnessError, match=said) as refused:
        backends.prepare("multitask_digits", "pytorch", device)
    assert len(str(refused.value)) < 250 and str(refused.value).endswith("use cpu.")


def test_an_experiment_that_is_not_committed_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "sweep", lambda *_, **__: pytest.fail("work was done"))
    path = tmp_path / "absent_tasks.toml"
    path.write_bytes((declare.EXPERIMENTS / path.name).read_bytes())
    monkeypatch.setattr(declare, "EXPERIMENTS", tmp_path)
    result = CliRunner().invoke(cli.app, ["run", "absent_tasks", "--publish"])
    assert isinstance(result.exception, HarnessError)
    assert "absent_tasks.toml: expected a file that is committed" in str(
        result.exception
    )
