"""Runs that go on, and their summary."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.mutation import run, summary
from harness.mutation.mutant import ROOT, Edit, Mutant
from harness.mutation.run import FOLDER, Request, run_mutants
from harness.mutation.summary import describe, read_reasons, summarize
from harness.records.files import read_lines
from harness.statistics import share_interval
from lockstep import registry

MUTANTS = [
    Mutant("impls/a.py", "AddNot", number, 1, "", Edit(0, 0, ""), "new")
    for number in range(5)
]


def line_of(mutant: Mutant, status: str, kind: str = "") -> dict[str, Any]:
    """Return a line of results."""
    place = {"path": mutant.path, "digest": mutant.digest, "definition": "f"}
    change = {"before": "a < b", "after": "a <= b"}
    end = {"status": status, "kind": kind, "by": "x" if kind else "", "seconds": 1.0}
    return {"id": mutant.id, **place, **change, **end}


def write(folder: Path, lines: list[dict[str, Any]], mutants: int = 5) -> None:
    """Write the results of a backend."""
    head = {"mutants": mutants, "drawn": 5, "seed": 1}
    (folder / "reference.json").write_text(json.dumps(head), "utf-8")
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "reference.jsonl").write_text(text, "utf-8")


RESULTS = [
    line_of(MUTANTS[0], "killed", "case"),
    line_of(MUTANTS[1], "killed", "time"),
    line_of(MUTANTS[2], "broken"),
    line_of(MUTANTS[3], "survived"),
]


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the module of the mutants above, which is made up, their digest."""
    known = {"impls/a.py": "new"}
    digest = summary.current_digest
    monkeypatch.setattr(
        summary, "current_digest", lambda path: known.get(path) or digest(path)
    )


class Killing:
    """Trials that kill every mutant."""

    def __init__(self, backend: str, recorded: Any, reach: Any) -> None:
        pass

    def record(self, mutant: Mutant) -> dict[str, Any]:
        """Return the line of a killed mutant."""
        return line_of(mutant, "killed", "case")

    def require_sound(self, lines: Any) -> None:
        """Accept whatever killed them."""


@pytest.fixture
def request_(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Request:
    monkeypatch.setattr(run, "_drawn", lambda _: MUTANTS)
    monkeypatch.setattr(run, "read_reach", lambda *_: None)
    monkeypatch.setattr(run, "Trials", Killing)
    return Request("reference", Path("python"), 60, 2, tmp_path)


def test_the_same_command_goes_on_where_the_last_one_stopped(request_: Request) -> None:
    reported: list[str] = []
    left = [
        run_mutants(request_, lambda line: reported.append(line["id"]))
        for _ in range(3)
    ]
    assert left == [3, 1, 0]
    assert reported == [mutant.id for mutant in MUTANTS]


def test_a_line_that_was_torn_is_tried_again(request_: Request) -> None:
    run_mutants(request_, lambda _: None)
    file = request_.folder / "reference.jsonl"
    file.write_bytes(file.read_bytes()[:-10])
    reported: list[str] = []
    with pytest.warns(UserWarning, match="torn"):
        run_mutants(request_, lambda line: reported.append(line["id"]))
    assert reported == [mutant.id for mutant in MUTANTS[1:3]]


def test_no_mutant_is_begun_after_the_time(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 3599.0, 3601.0])
    monkeypatch.setattr(run.time, "monotonic", lambda: next(times))
    assert run_mutants(request_, lambda _: None) == 4


def test_jobs_try_so_many_mutants_at_once_and_each_of_them_once(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)

    def record(self: Killing, mutant: Mutant) -> dict[str, Any]:
        both.wait(timeout=30)
        return line_of(mutant, "killed", "case")

    monkeypatch.setattr(Killing, "record", record)
    reported: list[str] = []
    request = replace(request_, count=4, jobs=2)
    assert run_mutants(request, lambda line: reported.append(line["id"])) == 1
    assert sorted(reported) == [mutant.id for mutant in MUTANTS[:4]]


def test_nothing_is_recorded_before_the_killers_passed_without(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []

    def refuse(self: Killing, lines: Any) -> None:
        checked.append(len(lines))
        if len(checked) == 2:
            raise HarnessError("not sound")

    monkeypatch.setattr(Killing, "require_sound", refuse)
    monkeypatch.setattr(run, "TOGETHER", 1)
    with pytest.raises(HarnessError, match="not sound"):
        run_mutants(request_, lambda _: None)
    assert len(read_lines(request_.folder / "reference.jsonl")) == 1
    assert checked == [1, 1]


def test_a_python_without_cosmic_ray_is_an_error(tmp_path: Path) -> None:
    lister = tmp_path / "python"
    lister.write_text("#!/bin/sh\necho 'No module named cosmic_ray' >&2\nexit 1\n")
    lister.chmod(0o755)
    request = Request("reference", lister, 1, folder=tmp_path)
    with pytest.raises(
        HarnessError, match=r"No module named cosmic_ray; run it as nox"
    ):
        run_mutants(request, lambda _: None)


def test_a_program_that_lists_nothing_is_an_error(tmp_path: Path) -> None:
    lister = tmp_path / "python"
    lister.write_text("#!/bin/sh\n")
    lister.chmod(0o755)
    request = Request("reference", lister, 1, folder=tmp_path)
    with pytest.raises(HarnessError, match="got exit status 0 and nothing else"):
        run_mutants(request, lambda _: None)


def test_a_share_counts_the_killed_among_those_that_could_be_imported(
    tmp_path: Path,
) -> None:
    write(tmp_path, RESULTS)
    shares = summarize("reference", tmp_path)
    assert shares is not None
    assert (shares.tried, shares.broken, len(shares.survivors)) == (3, 1, 1)
    assert shares.killed == {"case": 1, "time": 1}
    assert (shares.share, shares.share_at_once) == (2 / 3, share_interval(2, 3))
    assert not shares.exhaustive
    first = "at the first try 66.7% [9.4%, 99.2%]"
    assert str(shares) == f"reference: 2 of 3 mutants killed, 66.7%; {first}"


def test_of_two_tries_the_last_counts_but_not_for_the_interval(tmp_path: Path) -> None:
    write(tmp_path, [*RESULTS, line_of(MUTANTS[3], "killed", "test")])
    shares = summarize("reference", tmp_path)
    assert shares is not None and not shares.survivors
    assert (shares.share, shares.share_at_once) == (1.0, share_interval(2, 3))


def test_survivors_without_a_reason_are_tried_again_first(request_: Request) -> None:
    write(request_.folder, RESULTS)
    tried: list[str] = []
    run_mutants(replace(request_, again=True), lambda line: tried.append(line["id"]))
    assert tried == [MUTANTS[3].id, MUTANTS[4].id]
    tried.clear()
    run_mutants(replace(request_, again=True), lambda line: tried.append(line["id"]))
    assert tried == []


def test_the_share_of_all_mutants_has_no_interval(tmp_path: Path) -> None:
    write(tmp_path, RESULTS, mutants=4)
    assert str(summarize("reference", tmp_path)).endswith("killed, 66.7%")


def test_results_of_an_older_source_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, [*RESULTS, {**RESULTS[3], "id": "older", "digest": "old"}])
    shares = summarize("reference", tmp_path)
    assert shares is not None and len(shares.survivors) == 1


def test_a_survivor_has_the_reason_of_its_change(tmp_path: Path) -> None:
    write(tmp_path, RESULTS)
    reasons = tmp_path / "reasons.toml"
    text = 'path = "impls/a.py"\nbefore = "a < b"\nafter = "{}"\nreason = "Equal."\n'
    for after, reason in (("a <= b", "Equal."), ("a > b", "")):
        reasons.write_text(f"[[survivor]]\n{text.format(after)}", "utf-8")
        shares = summarize("reference", tmp_path, reasons)
        assert shares is not None and shares.survivors[0].reason == reason


def test_every_reason_is_that_of_a_recorded_survivor() -> None:
    # Of any source: who changes a module need not try its mutants again at once.
    alive = {
        (line["path"], line["before"], line["after"])
        for backend in registry.BACKENDS
        for line in read_lines(FOLDER / f"{backend}.jsonl")
        if line["status"] == "survived"
    }
    reasons = read_reasons()
    assert reasons.keys() <= alive
    assert all(len(reason) > 20 for reason in reasons.values())


def test_a_line_for_the_terminal_has_the_killer_and_the_change() -> None:
    text = describe({**RESULTS[0], "line": 1})
    assert text == "killed by x in 1 s: impls/a.py, line 1\n  a < b\n  a <= b"


SOURCE = '''
def f(a: int | None, *, b: "A | B" = 1 << 2) -> int | None:
    """Add 1 + 1."""
    c: int | None = a - b
    for x, y in zip(a, b, strict=True):
        raise ValueError(f"{x - 1}", 3 + y)
    return {**a, "k": g(a, strict=True)}
'''
CHANGED = {
    ("ReplaceBinaryOperator_LShift_RShift", 2),
    ("NumberReplacer", 2),
    ("ReplaceBinaryOperator_Sub_Add", 4),
    ("ZeroIterationForLoop", 5),
    ("ReplaceTrueWithFalse", 7),
}
"""Operators and lines of what is mutated in the source above."""


def test_annotations_texts_and_stars_are_not_mutated() -> None:
    python = ROOT / ".envs" / "mutants" / "bin" / "python"
    if not python.exists():
        pytest.skip("no environment with Cosmic Ray: nox -s environments -- mutants")
    code = (
        "import json, sys\n"
        "from harness.mutation.listing import edit_of, places\n"
        "source = sys.stdin.read()\n"
        "for place in places('impls/x.py', source):\n"
        "    edit = edit_of(place, source)\n"
        "    print(json.dumps([place.operator, place.line, edit.start]))\n"
    )
    done = subprocess.run(
        [python, "-c", code], input=SOURCE, capture_output=True, text=True, cwd=ROOT
    )
    assert done.stderr == ""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(operator, line) for operator, line, _ in lines} == CHANGED
    for _, line, start in lines:
        assert SOURCE.count("\n", 0, start) + 1 == line
