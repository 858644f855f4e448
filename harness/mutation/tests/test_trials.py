"""Trials in child processes: what kills a mutant, and what may count as a killer."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from harness.errors import HarnessError
from harness.mutation import trial, trials
from harness.mutation.choice import ENOUGH, Choice
from harness.mutation.digests import module_digest
from harness.mutation.mutant import Edit, Mutant, source_of
from harness.mutation.nearest import Check
from harness.mutation.reach import Reach, Unit
from harness.mutation.trial import Outcome
from harness.mutation.trials import Trials
from harness.parity import drivers, replay

PATH = "impls/lockstep/reference/multitask.py"
CASES = Check("case", ["numpy multitask-p-001"])
SPOILT = "\nMultitaskOptimizerWrapper.apply_gradients = lambda *_: None\n"


def mutant(text: str) -> Mutant:
    """Return a mutant of the multitask wrapper that has ``text`` at its end."""
    source = source_of(PATH)
    at = len(source)
    return Mutant(PATH, "AddNot", 0, 1, "", Edit(at, at, text), module_digest(source))


def tried(text: str, check: Check, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the line of a mutant on which one check is tried."""
    patch.setattr(trials, "choose", lambda *_: Choice([check]))
    trials_of_one = Trials("reference")
    line = trials_of_one.record(mutant(text))
    trials_of_one.require_sound([line])
    return line


def outcome(line: dict[str, Any]) -> tuple[str, str, str]:
    return line["status"], line["kind"], line["by"]


def test_the_same_code_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(tried("\n", CASES, monkeypatch)) == ("survived", "", "")


def test_a_case_that_fails_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    line = tried(SPOILT, CASES, monkeypatch)
    assert outcome(line) == ("killed", "case", "numpy multitask-p-001")
    assert (line["path"], line["digest"]) == (PATH, module_digest(source_of(PATH)))


def test_a_test_that_fails_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    file = "impls/lockstep/reference/tests/test_reference.py"
    line = tried(SPOILT, Check("test", [file]), monkeypatch)
    assert outcome(line)[:2] == ("killed", "test")
    assert line["by"].startswith(f"{file}::test_")


IN_A_PROCESS = """
import lockstep, os, subprocess, sys
from pathlib import Path
from harness.processes.environment import child_variables

SEEN = "from lockstep.reference import MultitaskOptimizerWrapper as wrapper\\n" \\
    "assert wrapper.apply_gradients.__name__ == 'apply_gradients'"

def test_it():
    subprocess.run([sys.executable, "-c", SEEN], env={variables}, check=True)
"""


OWN_PATH = "{**os.environ, 'PYTHONPATH': str(Path(lockstep.__file__).parents[1])}"


@pytest.mark.parametrize("variables", ["None", "child_variables()", OWN_PATH])
def test_a_process_that_a_test_starts_runs_the_mutant(
    variables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "test_in_a_process.py"
    file.write_text(IN_A_PROCESS.replace("{variables}", variables), "utf-8")
    check = Check("test", [str(file)])
    monkeypatch.setattr(trials, "choose", lambda *_: Choice([check]))
    lines = [Trials("reference").record(mutant(text)) for text in (SPOILT, "\n")]
    assert [line["status"] for line in lines] == ["killed", "survived"]


@pytest.mark.parametrize(
    ("keyword", "status"), [("flushing", "survived"), ("head", "killed")]
)
def test_only_tests_with_the_keyword_are_run(
    keyword: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Check("test", ["impls/lockstep/reference/tests/test_reference.py"], keyword)
    line = tried(SPOILT, check, monkeypatch)
    assert line["status"] == status and (keyword in line["by"]) is (status == "killed")


def test_cases_that_change_the_framework_for_good_come_after_all_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [(mode, Mock()) for mode in ("v1", "eager", "v1", "graph")]
    done: list[str] = []

    @contextmanager
    def driver(backend: str, mode: str) -> Iterator[None]:
        done.append(mode)
        yield

    monkeypatch.setattr(trial, "cases_of", lambda *_: cases)
    monkeypatch.setattr(trial, "_failed_test", lambda *_: done.append("test"))
    monkeypatch.setattr(drivers, "load", driver)
    monkeypatch.setattr(trial, "closing", lambda driver: driver)
    monkeypatch.setattr(replay, "replay", lambda *_: Mock(status="passed"))
    checks = [{"kind": "case", "names": ["larc"]}, {"kind": "test", "names": []}]
    trial._first_failure({"backend": "tf", "checks": checks}, Mock())
    assert done == ["eager", "graph", "test", "v1", "v1"]


def test_a_test_that_is_gone_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Check(
        "test", ["impls/lockstep/reference/tests/test_reference.py::test_gone"]
    )
    assert outcome(tried(SPOILT, gone, monkeypatch)) == ("survived", "", "")


def test_a_mutant_that_cannot_be_imported_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = tried("\nraise TypeError('no such operator')\n", CASES, monkeypatch)
    assert outcome(line) == ("broken", "", "TypeError: no such operator")


def test_a_process_that_ends_itself_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    line = tried("\nimport os\nos._exit(3)\n", CASES, monkeypatch)
    assert outcome(line) == ("killed", "crash", "exit status 3")


@pytest.mark.parametrize(
    ("seconds", "limit"), [(None, 120), (2.5, 85), (0.0, 60), (30.0, 120)]
)
def test_a_trial_may_take_ten_times_as_long_as_its_checks_without(
    seconds: float | None, limit: int
) -> None:
    assert Trials("reference")._limit(Choice([CASES], seconds)) == limit


@pytest.mark.skipif(os.name != "posix", reason="the system counts no processor time")
def test_a_process_that_computes_too_long_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Importing the reference takes 0.4 s of processor time, so 2 s are ample without.
    monkeypatch.setattr(trials, "LIMITS", {"reference": 2})
    line = tried("\nwhile True: pass\n", CASES, monkeypatch)
    assert outcome(line) == ("killed", "time", "more work than is allowed")


@pytest.mark.skipif(os.name != "posix", reason="the system counts no processor time")
def test_a_case_that_takes_much_longer_than_without_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endless = SPOILT.replace("lambda *_: None", "lambda *_, **__: any(iter(int, 1))")
    name = CASES.names[0]
    content = {"seconds": {name: 0.1}, "entered": {name: []}}
    seen = Reach("reference", [(Unit("numpy", mode=True), content)])
    monkeypatch.setattr(trials, "BESIDE", 1)
    monkeypatch.setattr(trials, "choose", lambda *_: Choice([CASES]))
    trials_of_one = Trials("reference", [], seen)
    line = trials_of_one.record(mutant(endless))
    assert outcome(line) == ("killed", "time", "more work than is allowed")
    assert line["seconds"] < 60
    # Only the case that did not end is tried without the mutant.
    assert trials_of_one._ended == {line["id"]: [CASES]}


def test_a_process_that_waits_too_long_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "LIMITS", {"reference": 4})
    monkeypatch.setattr(trials, "WAITING", 1)
    # That it is sound is another test: a busy machine might take longer without, too.
    monkeypatch.setattr(Trials, "require_sound", lambda *_: None)
    line = tried("\nimport time\ntime.sleep(60)\n", CASES, monkeypatch)
    assert outcome(line) == ("killed", "time", "more than 4 s")


def test_a_check_that_fails_without_the_mutant_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks: list[Any] = []

    def fail(self: Trials, task: Any, checks: Any, folder: Path) -> Outcome:
        tasks.append((task["module"], list(checks)[:1]))
        return Outcome("killed", "case", "numpy multitask-p-001")

    monkeypatch.setattr(Trials, "_run", fail)
    expected = "got case numpy multitask-p-001 on the code as it is; correct"
    with pytest.raises(HarnessError, match=expected):
        tried("\n", CASES, monkeypatch)
    module = "lockstep.reference.multitask"
    assert tasks == [(module, [CASES]), (None, [CASES])]


def test_a_killer_is_tried_once_without_a_mutant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks: list[Any] = []

    def kill(self: Trials, task: Any, checks: Any, folder: Path) -> Outcome:
        tasks.append(task["module"])
        return Outcome("killed", "case", "a") if task["module"] else Outcome("survived")

    monkeypatch.setattr(Trials, "_run", kill)
    trials_of_three = Trials("reference")
    lines = [trials_of_three.record(mutant("\n")) for _ in range(2)]
    trials_of_three.require_sound(lines)
    trials_of_three.require_sound([trials_of_three.record(mutant("\n"))])
    module = "lockstep.reference.multitask"
    assert tasks == [module, module, None, module]


def test_what_killed_others_of_the_module_is_tried_first() -> None:
    known = [
        {"path": PATH, "status": "killed", "kind": kind, "by": by}
        for kind, by in [("case", "a"), ("case", "b"), ("case", "b"), ("test", "c")]
    ]
    other = {"path": "other.py", "status": "killed", "kind": "case", "by": "z"}
    survived = {"id": "s", "path": PATH, "status": "survived", "kind": "", "by": ""}
    trials_of_all = Trials("reference", [*known, other, survived])
    signatures, *checks = trials_of_all._choice(mutant("\n")).checks
    assert checks[:2] == [Check("case", ["b", "a"]), Check("test", ["c"])]
    assert [signatures, *checks[2:]] == Trials("reference")._choice(mutant("\n")).checks


@pytest.mark.parametrize("status", ["survived", "killed"])
def test_for_a_survivor_that_is_tried_again_no_check_is_left_out(
    status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def choose(mutant: Mutant, reach: Reach, killers: Any, enough: float) -> Choice:
        limits.append(enough)
        return Choice([])

    monkeypatch.setattr(trials, "choose", choose)
    line = {"id": mutant("\n").id, "path": PATH, "kind": "", "by": "", "status": status}
    Trials("reference", [line])._choice(mutant("\n"))
    assert limits == [math.inf if status == "survived" else ENOUGH]
