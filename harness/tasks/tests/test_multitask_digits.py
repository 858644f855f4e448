"""The task: one plan for all backends, exact zeros for absent tasks, no retracing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from harness.records.record import Outcome
from harness.tasks.absent_heads.training import loss_weights, trainer_of
from harness.tasks.multitask_digits import task
from harness.tasks.multitask_digits.task import ABSENTEE, TASKS, Settings, make_plan
from lockstep import registry

BACKENDS = ("pytorch", "tf", "keras3")


def config(**changes: Any) -> dict[str, Any]:
    adam = {"name": "Adam", "learning_rate": 0.01}
    base = {"optimizer": adam, "wrapper": "default", "presence": 0.3, "steps": 40}
    return {
        **base,
        "absence": [1, 5],
        "checkpoints": 4,
        "batch": 8,
        "hidden": 4,
    } | changes


def run(backend: str, seed: int = 0, **changes: Any) -> Outcome:
    pytest.importorskip(registry.find(backend).framework)
    return task.train(config(**changes), seed, backend, "cpu")


def test_schedules_are_nested_and_parity_leaves_at_the_end() -> None:
    often, rarely = (
        make_plan(Settings(**config(presence=p)), 0).presence for p in (0.5, 0.1)
    )
    assert (rarely <= often).all()
    assert 0 < rarely.sum() < often.sum()
    assert not often[40:, TASKS.index(ABSENTEE)].any()
    assert often[40:].any()


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_probes_count_what_the_laws_speak_of(backend: str) -> None:
    rate = 0.5
    series = run(backend, optimizer={"name": "GradientDescent", "learning_rate": rate})
    for name in TASKS:
        moved = np.array(series.series[f"probe/{name}"])
        informative = np.array(series.series[f"informative/{name}"])
        assert np.array_equal(moved, rate * informative)


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_absent_task_is_fed_exact_zeros(backend: str) -> None:
    series = run(backend).series
    states = [name for name in series if name.startswith("state/")]
    assert len(states) == {"keras3": 0}.get(backend, 2)
    for name in (*states, "probe/parity"):
        during_absence = series[name][4:]
        assert len(set(during_absence)) == 1, name
    assert series["path/parity"][4] == series["path/parity"][-1]
    if states:
        fed = run(backend, wrapper="none").series["state/head/m"]
        assert fed[-1] == pytest.approx(0.9**5 * fed[4], rel=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_does_not_depend_on_those_before_it(backend: str) -> None:
    alone = run(backend, seed=3)
    run(backend, seed=4, presence=1.0)
    assert run(backend, seed=3) == alone


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("wrapper", "names"),
    [
        ("none", ["Momentum"]),
        ("mean", ["RMSProp"]),
        ("default", ["Momentum", "Adam", "RMSProp"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_backends_agree_on_a_short_run(
    backend: str, wrapper: str, names: list[str]
) -> None:
    for name in names:
        # Keras' Adam counts steps for all variables together, as tf's strict does.
        shared = (backend, wrapper, name) == ("keras3", "default", "Adam")
        judge, same = ("tf", "strict") if shared else ("pytorch", wrapper)
        optimizer = {"name": name, "learning_rate": 0.003}
        optimizer |= {"momentum": 0.9} if name == "Momentum" else {}
        expected = run(judge, optimizer=optimizer, wrapper=same).series
        other = run(backend, optimizer=optimizer, wrapper=wrapper).series
        assert other.keys() <= expected.keys()
        for column, values in other.items():
            # Rounding, over 45 steps of a smooth net.
            assert values == pytest.approx(expected[column], rel=1e-4, abs=1e-6), column


def test_a_mean_over_tasks_divides_the_loss_of_a_step_by_their_number() -> None:
    presence = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 0], [0, 0, 0]], np.float32)
    third = np.float32(1) / np.float32(3)
    expected = [[third] * 3, [0.5, 0, 0.5], [0, 1, 0], [0, 0, 0]]
    assert np.array_equal(loss_weights(presence, "mean"), np.array(expected, "f4"))
    for wrapper in ("none", "default", "strict"):
        assert np.array_equal(loss_weights(presence, wrapper), presence)


def test_tensorflow_traces_once_for_all_runs() -> None:
    run("tf")
    of = Settings(**config())
    trainer = trainer_of("multitask_digits", of, "tf", "cpu")
    before = trainer.loop.experimental_get_tracing_count()
    run("tf", seed=1, presence=0.9)
    run("tf", seed=2, steps=80)
    assert trainer.loop.experimental_get_tracing_count() == before
