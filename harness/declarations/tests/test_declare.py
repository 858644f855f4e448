"""Experiments are checked when they are read; they always expand into the same runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.declarations import declare
from harness.errors import HarnessError
from harness.tests.declared import declared

GOOD = (declare.EXPERIMENTS / "absent_tasks.toml").read_text("utf-8")
ARM = 'arm = { wrapper = "none", presence = 0.02, "optimizer.name" = "Adam" }'

DAMAGES = {
    "unknown key": ('title = "', 'titel = "', "line 2, titel: .*mean 'title'"),
    "unknown task": ("multitask_digits", "multitask_digit", "'multitask_digits'?"),
    "unknown backend": ('"tf"]', '"tensorflow"]', "expected one of keras3, pytorch"),
    "unknown setting": (
        "hidden = 32",
        "hiden = 32",
        "line 10, fixed.hiden: .*'hidden'",
    ),
    "unknown scale": ("[scale.std]", "[scale.standard]", "expected one of full, quick"),
    "setting twice": ("batch = 32", "batch = 32\nsteps = 5", "got fixed and scale.qui"),
    "setting nowhere": (
        "batch = 32",
        "",
        "expected batch in one of fixed, vary, scale",
    ),
    "no seeds": ("seeds = 20", "seeds = 0", "line 32, scale.std.seeds: Input"),
    "no reason": ('because = "Shows', 'seeds_because = "Shows', "quick.because"),
    "no list": ("presence = [1.0, 0.5, 0.1, 0.02]", "presence = 1.0", "valid list"),
    "no table": ("[fixed]", "[fixed.more]", "setting: expected one of"),
    "no TOML": ("[fixed]", "[fixed", "expected TOML, got .*line 8"),
    "no budget": ("budget_minutes = 16\n", "", "budget_minutes: Field required"),
    "seeds of [tune]": ("seeds = 20", "seeds = 1001", "less than or equal to 1000"),
    # What the task checks.
    "a wrong value": ("hidden = 32", 'hidden = "a"', "line 10, fixed.hidden: Input"),
    "what does not divide": (
        "= 10  ",
        "= 6  ",
        "line 11, fixed.checkpoints: .* for 400",
    ),
    # Comparisons.
    "key of a comparison": ('because = "for a', 'becaus = "for a', "mean 'because'?"),
    "no claim": ('claim = "With Adam', 'name2 = "With Adam', "got 'name2'"),
    "unknown metric": ('= "head movement"', '= "los"', "did you mean 'loss'?"),
    "unknown effect": ('"log ratio"', '"ratio"', "effect: expected one of differ"),
    "setting of no arm": (ARM, ARM.replace("wrapper", "wraper"), "mean 'wrapper'?"),
    "a value that no run has": (
        ARM,
        ARM.replace("0.02", "0.03"),
        r"line 47, .*\.presence: expected a value that some run has \(1.0, 0.5, 0.1, 0",
    ),
    "several configurations": (
        ARM,
        'arm = { wrapper = "none", presence = 0.02 }',
        "arm: expected settings that exactly one combination of vary has, got 3",
    ),
    "no arm": (ARM, 'arm = "none"', "arm: Input should be"),
    "the same arm": (ARM, ARM.replace("none", "default"), "against: expected another"),
    "no interval": ("low = 0.0\n", "", "low: expected low, high or both"),
    "settings that no effect takes": (
        "low = 0.0\n",
        'low = 0.0\nover = ["presence"]\n',
        "over: expected no settings for the effect 'log ratio'",
    ),
    "a share of no settings": (
        '"log ratio"',
        '"share of settings"',
        "over: expected settings that are combined",
    ),
    "a slope of two arms": (
        'effect = "log ratio"',
        'effect = "slope per doubling"\nover = ["presence"]',
        "over: expected one setting, and no arm to compare with",
    ),
    "a name twice": (
        'name = "heads-momentum"',
        'name = "heads-adam"',
        "name: expected a name that no comparison above it has, got 'heads-adam'",
    ),
}
"""What is replaced by what, and what the sentence has."""


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_one_sentence(
    tmp_path: Path, damage: tuple[str, str, str]
) -> None:
    old, new, expected = damage
    assert old in GOOD
    path = tmp_path / "broken.toml"
    path.write_text(GOOD.replace(old, new, 1), "utf-8")
    with pytest.raises(HarnessError, match=rf"^broken\.toml: .*{expected}.*$"):
        declare.read(path)


def test_more_than_five_comparisons_are_refused(tmp_path: Path) -> None:
    first = GOOD[GOOD.index("[[primary]]") :].split("\n\n")[0]
    more = [first.replace("heads-adam", f"more-{k}") for k in range(4)]
    path = tmp_path / "many.toml"
    path.write_text("\n\n".join([GOOD, *more]), "utf-8")
    with pytest.raises(HarnessError, match=r"should have at most 5 items"):
        declare.read(path)


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(HarnessError, match="did you mean 'absent_tasks'"):
        declare.find("absent_task")
    with pytest.raises(HarnessError, match="did you mean 'quick'"):
        declare.find("absent_tasks").runs("quik")


def test_ids_are_stable_and_any_first_part_of_the_runs_is_balanced() -> None:
    runs = declare.find("absent_tasks").runs("std")
    assert len({run.id for run in runs}) == len(runs) == 480
    assert [run.seed for run in runs[:25]] == [0] * 24 + [1]
    assert declare.Run("e", "t", {"steps": 1}, seed=0).id == "843686fb46e2"


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("a head moves further", "heads move further", True),
        ('because = "for a', 'because = "For a', True),
        ("low = 0.0\n", "low = 0.1\n", False),
        ('metric = "head movement"', 'metric = "loss"', False),
        ("presence = 0.02", "presence = 0.1", False),
        ('name = "heads-adam"', 'name = "adam"', False),
    ],
)
def test_the_prediction_follows_what_is_judged_and_no_wording(
    tmp_path: Path, old: str, new: str, same: bool
) -> None:
    path = tmp_path / "absent_tasks.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1), "utf-8")
    expected = declare.find("absent_tasks").prediction
    assert (declare.read(path).prediction == expected) == same


def test_an_experiment_may_predict_nothing(tmp_path: Path) -> None:
    assert declared(tmp_path).prediction == ""
