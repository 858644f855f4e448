"""The lost updates' task: float16's law, backends to the bit, checks that can fail."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.records.record import Outcome, Record
from harness.tasks.lost_updates import findings, laws
from harness.tasks.lost_updates.data import make_plan
from harness.tasks.lost_updates.settings import Settings
from lockstep.messages.errors import LockstepError, OutOfRangeError

EXPERIMENT = declare.find("lost_updates")
RUNS = EXPERIMENT.runs("quick")
BASE = {"method": "fp16", "weights": 4096, "steps": 20, "checkpoints": 4}


def settings(**changes: Any) -> Settings:
    return Settings(**{**BASE, "ratio": 3000.0, **changes})


@pytest.mark.parametrize("ratio", [1024.0, 2100.0, 2560.0, 3072.0, 4000.0, 5000.0])
def test_numpy_loses_the_law_s_share(ratio: float) -> None:
    plan = make_plan(settings(ratio=ratio), seed=0)
    # Four deviations of 4096 weights.
    expected = pytest.approx(laws.share_lost(ratio), abs=0.03)
    assert laws.lost_in_float16(plan) == expected


def test_the_law_begins_at_2048_and_ends_at_4096() -> None:
    shares = [laws.share_lost(ratio) for ratio in (2048.0, 2896.3, 4096.0, 1e6)]
    # 2896.3 is 2048 times the root of 2, to one decimal.
    assert shares == pytest.approx([0, 0.5, 1, 1], abs=1e-4)


def test_a_power_of_two_keeps_itself_on_a_tie() -> None:
    half_step = 16 / 2048
    assert np.float16(16 + half_step) == 16
    assert np.float16(16 + half_step * (1 + 2.0**-20)) > 16
    assert np.float16(16 + 3 * half_step) == 16 + 4 * half_step


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "master"}, "did you mean 'masters'"),
        ({"ratio": 2.0**19}, "ratio: expected above 1 and at most"),
        ({"checkpoints": 3}, "a number that divides steps"),
        ({"weights": 0}, "weights: expected a whole number > 0"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises((OutOfRangeError, LockstepError), match=said):
        settings(**changes)


# -- checks ----------------------------------------------------------------------------


def record(run: declare.Run, backend: str, **changes: float) -> Record:
    """Return what a run that follows the law would write."""
    plain = run.config["method"] == "fp16"
    share = laws.share_lost(run.config["ratio"]) if plain else 0.0
    moved = 1.0 - share
    own = {"first": share, "lost": share, "numpy": share, "moved": moved}
    return Record(
        **dataclasses.asdict(run),
        id=run.id,
        subject={"backend": backend, "device": "cpu", "lockstep": "0"},
        environment="0",
        status="ok",
        reason="",
        series={},
        summary={**own, **changes},
    )


def judged(method: str = "", ratio: float = 0.0, **changes: float) -> Any:
    """Judge records of both backends; change one setting on the second."""
    records = []
    for run in RUNS:
        records.append(record(run, "pytorch"))
        changed = run.config["method"] == method and run.config["ratio"] == ratio
        records.append(record(run, "tf", **changes if changed else {}))
    return findings.judge(records)


def test_records_that_follow_the_law_pass_every_check() -> None:
    judgement = judged()
    assert "58% at 3072 and 100% at 16384" in judgement.answer
    assert not any(line.startswith("Does not") for line in judgement.small_print)
    assert findings.match(judgement.tables, judgement.tables)["matches"].all()


@pytest.mark.parametrize(
    ("method", "ratio", "changes", "check"),
    [
        ("fp16", 1024.0, {"first": 0.1}, "only there"),
        ("fp16", 2560.0, {"first": 0.0}, "only there"),
        ("fp16", 3072.0, {"first": 0.5}, "the share lost"),
        ("fp16", 16384.0, {"first": 0.99}, "all from 4096"),
        ("masters", 16384.0, {"lost": 0.1}, "masters lose none"),
        ("masters", 256.0, {"moved": 1.1}, "all the way"),
        ("fp16", 512.0, {"numpy": 0.001}, "the same updates"),
    ],
)
def test_a_host_that_behaves_otherwise_fails_a_check(
    method: str, ratio: float, changes: dict[str, float], check: str
) -> None:
    judgement = judged(method, ratio, **changes)
    failed = [s for s in judgement.small_print if s.startswith("Does not hold")]
    assert any(check in sentence for sentence in failed), failed


# -- backends ------------------------------------------------------------------------


def trained(backend: str, method: str, ratio: float) -> Outcome:
    framework = {"pytorch": "torch", "tf": "tensorflow"}[backend]
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    from harness.tasks.lost_updates import training

    config = {**BASE, "method": method, "ratio": ratio}
    return training.train(config, 0, backend, "cpu")


@pytest.mark.parametrize("backend", ["pytorch", "tf"])
@pytest.mark.parametrize("ratio", [1024.0, 3072.0, 8192.0])
def test_float16_weights_lose_on_a_host_what_numpy_loses(
    backend: str, ratio: float
) -> None:
    found = trained(backend, "fp16", ratio).summary
    assert found["first"] == found["numpy"]


@pytest.mark.parametrize("backend", ["pytorch", "tf"])
def test_masters_keep_an_update_that_float16_loses(backend: str) -> None:
    without = trained(backend, "fp16", 8192.0).summary
    having = trained(backend, "masters", 8192.0).summary
    assert (without["lost"], without["moved"]) == (1, 0)
    assert having["lost"] == 0
    # 20 updates are at most 5 steps of float16; the median rounds to even ones.
    assert having["moved"] == pytest.approx(1, abs=0.2)
