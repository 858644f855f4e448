"""What is frozen in the snapshots is what is published, and what the code does."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.nets import __main__ as command
from harness.nets import nestings, parity, signatures, snapshots
from harness.nets.snapshots import differences
from harness.parity import drivers
from harness.parity.cases import GOLDEN, read_cases
from harness.parity.plan import plan_backend
from harness.parity.replay import replay
from lockstep import registry

BACKENDS = sorted(registry.BACKENDS)


def needs(backend: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")


def assert_frozen(name: str, frozen: Any, fresh: Any) -> None:
    lines = differences(frozen, fresh)
    remedy = f"if this is meant, run python -m harness.nets write {name}"
    assert not lines, "\n".join([*lines, remedy])


def test_the_published_parity_report_has_the_frozen_numbers() -> None:
    assert_frozen("parity", snapshots.read("parity"), parity.take())


# A family in which every backend is off by last digits, in its first mode.
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fresh_replay_has_the_frozen_numbers(backend: str) -> None:
    needs(backend)
    entry = registry.find(backend)
    (mode, *_), cases = entry.modes, read_cases(GOLDEN, ["multitask"])
    plan, _ = plan_backend(cases, entry, [mode], False)
    rows = []
    for case in plan[mode]:
        with closing(drivers.load(backend, mode)) as driver:
            rows.append(replay(case, driver).as_json())
    assert any(row["max_ulp"] for row in rows)
    assert not parity.compare(parity.outcomes(rows), snapshots.read("parity"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_signatures_are_as_frozen(backend: str) -> None:
    needs(backend)
    frozen = snapshots.read("signatures")[backend]
    assert_frozen("signatures", frozen, signatures.of_backend(backend))


def test_errors_can_be_caught_as_frozen() -> None:
    frozen = snapshots.read("signatures")["errors"]
    assert_frozen("signatures", frozen, signatures.of_errors())


def test_the_table_of_nestings_is_as_frozen() -> None:
    frozen = snapshots.read("nestings")["table"]
    assert_frozen("nestings", frozen, nestings.declared())


@pytest.mark.parametrize("name", nestings.BACKENDS)
def test_nestings_come_to_what_is_frozen(name: str) -> None:
    needs(nestings.BACKENDS[name][0])
    frozen = snapshots.read("nestings")[name]
    assert_frozen("nestings", frozen, nestings.verdicts(name))


def test_a_default_nesting_takes_steps_where_the_table_says_right() -> None:
    frozen = snapshots.read("nestings")
    for name in nestings.BACKENDS:
        for pair, declared in frozen["table"][name].items():
            verdict = frozen[name]["default"][pair]
            assert verdict.startswith("takes steps") == declared.startswith("right")
            assert declared.removeprefix("refused: ") in verdict or "right" in declared


# What the nets can tell apart


ROW: dict[str, Any] = {
    "id": "x-1",
    "backend": "tf",
    "face": "eager",
    "status": "passed",
    "max_ulp": 0.25,
    "max_ulp_raw": 1.0,
    "first_divergence": {"step": 0, "index": [1], "got": "0x1", "expected": "0x2"},
}


def test_the_mode_of_a_row_may_go_by_either_name() -> None:
    renamed = {key: value for key, value in ROW.items() if key != "face"}
    assert parity.outcomes([ROW]) == parity.outcomes([{**renamed, "mode": "eager"}])


@pytest.mark.parametrize("key", ["status", "max_ulp", "max_ulp_raw"])
def test_another_number_is_another_outcome(key: str) -> None:
    assert parity.outcomes([ROW]) != parity.outcomes([{**ROW, key: 3.0}])


def test_other_bits_at_the_first_divergence_are_another_outcome() -> None:
    first = {**ROW["first_divergence"], "got": "0x3"}
    assert parity.outcomes([ROW]) != parity.outcomes(
        [{**ROW, "first_divergence": first}]
    )


def test_a_processors_estimate_may_change_digits_and_no_status() -> None:
    name = sorted(parity.ESTIMATED)[0]
    mode, _, case = name.partition(" / ")
    frozen = {mode: {case: "passed, 1.0 ULP", "other": "passed, 1.0 ULP"}}
    assert not parity.compare({mode: {case: "passed, 2.0 ULP"}}, frozen)
    assert parity.compare({mode: {case: "failed, 1.0 ULP"}}, frozen)
    assert parity.compare({mode: {"other": "passed, 2.0 ULP"}}, frozen)
    assert parity.compare({mode: {"new": "passed, 2.0 ULP"}}, frozen)
    assert parity.ESTIMATED <= {
        f"{mode} / {case}"
        for mode, cases in snapshots.read("parity").items()
        for case in cases
    }


def test_moving_a_class_changes_no_signature_and_another_argument_does() -> None:
    def made(source: str, module: str) -> list[tuple[str, str]]:
        names: dict[str, Any] = {"__name__": module}
        exec(f"class Of:\n  def step(self, {source}) -> int: ...", names)
        return list(signatures.members("Of", names["Of"]))

    before = made("x: lockstep.tf.core.Pair = 0.5", "lockstep.tf.core")
    assert before == made("x: lockstep.tf.tensors.Pair = 0.5", "lockstep.tf.tensors")
    assert before != made("x: lockstep.tf.core.Pair = 0.25", "lockstep.tf.core")
    assert before != made("y: lockstep.tf.core.Pair = 0.5", "lockstep.tf.core")
    assert ("Of.step", "(self, x: 'Pair' = 0.5) -> 'int'") in before


def test_differences_are_lines_of_both_sides() -> None:
    frozen, fresh = {"a": {"b": "1", "c": "2"}}, {"a": {"c": "3", "d": "4"}}
    assert differences(frozen, fresh) == [
        "- a / b: 1",
        "- a / c: 2",
        "+ a / c: 3",
        "+ a / d: 4",
    ]


def test_a_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = snapshots.write("one", {"b": {"c": "×"}, "a": "1"}, tmp_path)
    assert list(json.loads(path.read_text("utf-8"))) == ["a", "b"]
    assert snapshots.read("one", tmp_path) == {"a": "1", "b": {"c": "×"}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected write NAME"),
        (["write"], "expected write NAME"),
        (["write", "parety"], "did you mean 'parity'?"),
        (["compare", "absent.json"], "No such file"),
    ],
)
def test_a_wrong_command_is_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 1
    assert said in capsys.readouterr().err
