"""Experiments are checked when they are read; they always expand into the same runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import declare
from harness.errors import HarnessError

GOOD = (declare.EXPERIMENTS / "absent_tasks.toml").read_text("utf-8")

DAMAGES = {
    "unknown key": ('title = "', 'titel = "', 2, "did you mean 'title'?"),
    "unknown task": ("multitask_digits", "multitask_digit", 3, "'multitask_digits'?"),
    "unknown backend": (
        '"tf"]',
        '"tensorflow"]',
        4,
        "expected one of keras3, pytorch, ref",
    ),
    "unknown setting": ("hidden = 32", "hiden = 32", 10, "did you mean 'hidden'?"),
    "unknown optimizer": ('"Adam"', '"Adan"', 21, "did you mean 'Adam'?"),
    "unknown argument": ("beta1 = 0.9", "beta_1 = 0.9", 21, "did you mean 'beta1'?"),
    "argument out of range": ("beta2 = 0.999", "beta2 = 1.0", 21, "a number in [0, 1)"),
    "unknown wrapper": ('"default"]', '"defualt"]', 17, "did you mean 'default'?"),
    "unknown scale": ("[scale.std]", "[scale.standard]", 30, "did you mean 'std'?"),
    "presence of 0": ("0.02]", "0.0]", 16, "presence: expected a probability"),
    "setting twice": ("batch = 32", "batch = 32\nsteps = 5", 27, "fixed and scale.qui"),
    "setting nowhere": ("batch = 32", "", 8, "batch: expected one of fixed"),
    "no seeds": ("seeds = 20", "seeds = 0", 32, "scale.std.seeds: expected"),
    "no reason": ('because = "Shows', 'seeds_because = "Shows', 25, "quick.because"),
    "uneven checkpoints": ("checkpoints = 10", "checkpoints = 7", 11, "even number"),
    "no list": ("presence = [1.0, 0.5, 0.1, 0.02]", "presence = 1.0", 16, "a list"),
    "no table": ("[fixed]", "[fixed.more]", 8, "key of fixed: expected"),
    "a number for a table": ("[scale.full]", "[scale]\nfull = 3\n[x]", 37, "expected"),
    "no TOML": ("[fixed]", "[fixed", 8, "expected TOML"),
    "no budget": ("budget_minutes = 16\n", "", 1, "budget_minutes: expected a key"),
    "budget of 0": ("budget_minutes = 16", "budget_minutes = 0", 5, "minutes > 0"),
    "seeds of [tune]": ("seeds = 20", "seeds = 1001", 32, "from 1 to 1000, where"),
}
"""What is replaced by what, the line that is named, and a part of the sentence."""


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_one_sentence_that_names_the_line(
    tmp_path: Path, damage: tuple[str, str, int, str]
) -> None:
    old, new, line, expected = damage
    assert old in GOOD
    path = tmp_path / "broken.toml"
    path.write_text(GOOD.replace(old, new, 1), "utf-8")
    with pytest.raises(HarnessError) as raised:
        declare.read(path)
    message = str(raised.value)
    assert expected in message
    assert message.startswith(f"broken.toml, line {line}: ")
    assert "\n" not in message


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(HarnessError, match="did you mean 'absent_tasks'"):
        declare.find("absent_task")
    with pytest.raises(HarnessError, match="did you mean 'quick'"):
        declare.find("absent_tasks").runs("quik")


def test_every_experiment_begins_with_its_question() -> None:
    for name in declare.known():
        first = (
            (declare.EXPERIMENTS / f"{name}.toml").read_text("utf-8").splitlines()[0]
        )
        assert first == f'question = "{declare.find(name).question}"'


def test_ids_are_stable_and_follow_every_setting() -> None:
    runs = declare.find("absent_tasks").runs("std")
    assert len({run.id for run in runs}) == len(runs) == 480
    again = declare.find("absent_tasks").runs("std")
    assert [run.id for run in again] == [run.id for run in runs]
    run = declare.Run("e", "t", {"steps": 1}, seed=0)
    assert run.id == "843686fb46e2"


def test_any_first_part_of_a_sweep_is_balanced() -> None:
    runs = declare.find("absent_tasks").runs("std")
    assert [run.seed for run in runs[:25]] == [0] * 24 + [1]
