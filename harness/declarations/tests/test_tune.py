"""Sweeps: the choice follows from records alone, in any order; damage is a sentence."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.declarations import tune
from harness.declarations.declare import Experiment, Run
from harness.declarations.tune import Choice
from harness.errors import HarnessError
from harness.records.metrics import Metric
from harness.records.record import Outcome, Record
from harness.tasks.multitask_digits import report
from harness.tests.declared import declared
from harness.tests.synthetic import record_of

SWEEP = """
[tune]
seeds = 3
metric = "loss"
values = { "optimizer.learning_rate" = [0.01, 0.03, 0.1, 0.3, 1.0] }
"""
ARMS = {
    'wrapper = "default"\n': "",
    "[vary]": '[vary]\nwrapper = ["none", "default"]',
    ", learning_rate = 0.1": "",
    '["pytorch"]': '["pytorch", "tf"]',
}


@pytest.fixture(autouse=True)
def metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "loss": Metric(lambda record: record.summary["loss"], "nats", "smaller"),
        "accuracy": Metric(lambda record: -record.summary["loss"], "share", "larger"),
    }
    monkeypatch.setattr(report, "METRICS", made, raising=False)


@pytest.fixture
def swept(tmp_path: Path) -> Experiment:
    """Two arms at five rates, on three validation seeds."""
    return declared(tmp_path, seeds=2, changes=ARMS, more=SWEEP)


Loss = Callable[[Run], float | None]


def rate_of(run: Run) -> float:
    rate: float = run.config["optimizer"]["learning_rate"]
    return rate


def recorded(runs: Sequence[Run], loss: Loss, backend: str = "pytorch") -> list[Record]:
    """Return records of these losses; None is a run that diverged."""

    def outcome(value: float | None) -> Outcome:
        if value is None:
            return Outcome("diverged", "a loss was not finite")
        return Outcome("ok", "", {}, {"loss": value})

    return [record_of(run, backend, outcome(loss(run))) for run in runs]


def chosen(experiment: Experiment, *sources: Sequence[Record]) -> Sequence[Choice]:
    return tune.with_choices(experiment, *sources).choices["quick"]


def loss_of(run: Run) -> float | None:
    """Best at 0.1 without the wrapper and at 0.3 with it; 1.0 diverges on two seeds."""
    best = {"none": 0.1, "default": 0.3}[run.config["wrapper"]]
    if rate_of(run) == 1.0 and run.seed > 1000:
        return None
    return 1 + abs(math.log(rate_of(run) / best)) + 0.01 * (run.seed - 1001)


def test_every_arm_has_its_own_choice(swept: Experiment) -> None:
    runs = swept.validation_runs("quick")
    assert {run.seed for run in runs} == {1000, 1001, 1002}
    assert len(runs) == 2 * 5 * 3

    choices = chosen(swept, recorded(runs, loss_of))

    assert [(c.config["wrapper"], c.value) for c in choices] == [
        ("none", 0.1),
        ("default", 0.3),
    ]
    assert choices[0].scores[1.0] == math.inf
    assert choices[0].scores[0.1] == pytest.approx(1)
    tuned = tune.with_choices(swept, recorded(runs, loss_of))
    report = tuned.runs("quick")
    assert [(run.seed, run.config["wrapper"], rate_of(run)) for run in report] == [
        *((0, "none", 0.1), (0, "default", 0.3)),
        *((1, "none", 0.1), (1, "default", 0.3)),
    ]


def test_the_table_of_a_sweep_has_every_value_of_every_arm(swept: Experiment) -> None:
    records = recorded(swept.validation_runs("quick"), loss_of)
    tuned = tune.with_choices(swept, records)
    table = tune.sweep_table(tuned, "quick")
    rate = "optimizer.learning_rate"
    assert len(table) == 2 * 5
    assert list(table.columns) == ["wrapper", rate, "loss", "chosen"]
    best = table[table["chosen"]].set_index("wrapper")[rate]
    assert best.to_dict() == {"none": 0.1, "default": 0.3}
    assert tune.choice_lines(tuned, "quick")[0] == f"wrapper none: {rate} 0.1 (loss 1)"


def test_order_other_backends_and_seeds_decide_nothing(swept: Experiment) -> None:
    runs = swept.validation_runs("quick")
    records = recorded(runs, loss_of)
    expected = chosen(swept, records)
    on_tf = recorded(runs, rate_of, "tf")
    tuned = tune.with_choices(swept, records)
    of_report = recorded(tuned.runs("quick"), lambda run: 0.0)
    mixed = [*records, *on_tf, *of_report]
    random.Random(0).shuffle(mixed)
    assert chosen(swept, mixed) == expected
    assert chosen(swept, on_tf) == []


def test_an_arm_whose_sweep_is_not_complete_has_no_choice(swept: Experiment) -> None:
    records = recorded(swept.validation_runs("quick"), loss_of)
    of_none = [r for r in records if r.config["wrapper"] == "none"]
    (choice,) = chosen(swept, of_none)
    assert choice.config["wrapper"] == "none"
    assert chosen(swept, of_none[1:]) == []


def test_the_first_source_that_has_choices_decides(swept: Experiment) -> None:
    runs = swept.validation_runs("quick")
    own, published = recorded(runs, loss_of), recorded(runs, rate_of)
    rates = [
        [c.value for c in chosen(swept, *sources)]
        for sources in ((own, published), ([], published), ([], []))
    ]
    assert rates == [[0.1, 0.3], [0.01, 0.01], []]


def test_an_arm_that_always_diverges_keeps_the_smallest_value(
    swept: Experiment,
) -> None:
    records = recorded(swept.validation_runs("quick"), lambda run: None)
    first, _ = chosen(swept, records)
    assert (first.value, first.scores[0.01], first.at_edge) == (0.01, math.inf, True)


def test_the_larger_metric_is_the_better_one(tmp_path: Path) -> None:
    swept = declared(tmp_path, changes=ARMS, more=SWEEP.replace('"loss"', '"accuracy"'))
    records = recorded(swept.validation_runs("quick"), loss_of)
    first, second = chosen(swept, records)
    assert (first.value, second.value) == (0.1, 0.3)
    assert (first.scores[0.1], first.scores[1.0]) == (pytest.approx(-1), -math.inf)


def test_a_metric_that_records_lack_is_one_sentence(swept: Experiment) -> None:
    records = [
        record_of(run, "pytorch", Outcome("ok"))
        for run in swept.validation_runs("quick")
    ]
    with pytest.raises(HarnessError, match="expected a record that has the metric"):
        chosen(swept, records)


DAMAGES = {
    "unknown key": ("seeds", "seed", "did you mean 'seeds'?"),
    "unknown metric": ('"loss"', '"los"', "did you mean 'loss'?"),
    "four values": (", 1.0]", "]", "should have at least 5 items"),
    "twice the same": ("0.03,", "0.01,", "in increasing order, got [0.01, 0.01"),
    "two settings": ("] }", "], batch = [1.0, 2.0, 3.0, 4.0, 5.0] }", "at most 1 item"),
    "no table": (SWEEP[SWEEP.index("{") :], "[0.1]", "valid dictionary"),
    "unknown setting": ('"optimizer.l', '"optimiser.l', "mean 'optimizer'?"),
    "set in an arm too": ('"optimizer.learning_rate"', "batch", "got fixed and"),
}
"""What is replaced by what, and a part of the sentence."""


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_sweep_is_one_sentence(
    tmp_path: Path, damage: tuple[str, str, str]
) -> None:
    old, new, expected = damage
    assert old in SWEEP
    with pytest.raises(HarnessError, match=r"^tiny\.toml: .+$") as raised:
        declared(tmp_path, 2, changes=ARMS, more=SWEEP.replace(old, new))
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("path", "changes"),
    [("optimizer.learning_rate", ARMS), ("presence", {"presence = 0.5\n": ""})],
)
def test_a_path_needs_no_quotation_marks(
    path: str, changes: dict[str, str], tmp_path: Path
) -> None:
    more = SWEEP.replace('"optimizer.learning_rate"', path)
    swept = declared(tmp_path, changes=changes, more=more)
    assert swept.tune is not None and swept.tune.path == path
    values = [swept.tune.value(run.config) for run in swept.validation_runs("quick")]
    assert values[:5] == [0.01, 0.03, 0.1, 0.3, 1.0]
