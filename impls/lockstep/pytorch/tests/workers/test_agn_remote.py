"""Workers whose center is behind the boundary of a process: the same bits, no state."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.nn import Parameter

from lockstep import pytorch
from lockstep.errors import UnsupportedError
from lockstep.messages.ray import TrainingEndedError
from lockstep.messages.workers.agn import GLOBAL_VARIABLE_NAME
from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    MomentumOptimizer,
)
from lockstep.pytorch.tests.subjects import ALL
from lockstep.pytorch.tests.workers.worker_pairs import (
    RemoteTeam,
    Team,
    assert_follows_a_schedule,
    sgd,
)
from lockstep.pytorch.workers.remote import RemoteCenter
from lockstep.ray.tests.local_host import LocalHost

COMMITS = ["gradient", "delta"]
EXPECTED = {
    "gradient": [[0.5, 0.5], [-0.25, -0.25]],
    "delta": [[0.5, 0.5], [0.0, 0.0]],
}
"""Two workers' weights after one round each, with momentum at the center or here."""
ORDER = [0, 1, 1, 2, 0, 2, 0, 0, 1, 1, 2, 2, 2, 2]


def assert_same_bits(ours, theirs) -> None:
    for one, other in zip(ours.shared(), theirs.shared(), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("name", ALL)
def test_the_center_moves_as_that_of_one_process(name, commit, tmp_path) -> None:
    """A crash with a checkpoint of each round and a lost reply change no bit."""
    host = LocalHost(tmp_path)
    ours = RemoteTeam(ALL[name], host, commit=commit).start()
    theirs = Team(ALL[name], 3, commit=commit).start()
    for seed, number in enumerate(ORDER):
        if seed == 6:
            host.lost = 1
        ours.step(number, seed)
        theirs.step(number, seed)
        if seed == 9:
            host.crash()
    assert_same_bits(ours, theirs)
    assert host.center.counters.repeated == 1
    assert host.center.counters.rounds == 7


def stack(params):
    """Return an optimizer with wrappers inside, one with rows of its own."""
    params = list(params)
    rows = pytorch.VariableClippingOptimizer(
        MomentumOptimizer(params, 0.1, 0.9), {params[0]: [0]}, max_norm=0.3
    )
    return pytorch.MultitaskOptimizerWrapper(rows)


INSIDE = {
    "wrappers": (stack, pytorch),
}


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_inside_and_strict_moves_the_center_as_in_one_process(
    name, tmp_path
) -> None:
    make, names = INSIDE[name]
    host = LocalHost(tmp_path)
    ours = RemoteTeam(make, host, names=names).start()
    theirs = Team(make, 3, names=names).start()
    for seed, number in enumerate(ORDER):
        ours.step(number, seed)
        theirs.step(number, seed)
        if seed == 9:
            host.crash()
    assert_same_bits(ours, theirs)


def test_a_schedule_of_the_worker_is_followed(tmp_path) -> None:
    weight = Parameter(torch.ones(3))
    getter = AGNCustomGetter("cpu", center=RemoteCenter(LocalHost(tmp_path)))
    worker = AGNOptimizer(torch.optim.SGD(getter([weight]), lr=0.5), 1, getter, 1)
    assert_follows_a_schedule(weight, worker)


def test_a_round_is_one_call(tmp_path) -> None:
    team = RemoteTeam(sgd, LocalHost(tmp_path), count=1).start()
    team.host.calls.clear()
    for seed in range(4):
        team.step(0, seed)
    assert team.host.calls == ["push", "push"]


def test_what_a_worker_pushes_can_be_logged(tmp_path) -> None:
    team = RemoteTeam(sgd, LocalHost(tmp_path), 2, 1).start()
    team.step(1), team.step(0), team.step(1)
    numbers = team.workers[1].step_numbers()
    assert numbers["center_rounds"] == 3
    assert numbers["staleness"] == 1
    assert numbers["pushed_bytes"] == 2 * 4 * 9
    assert "staleness" not in Team(sgd, 1).start().workers[0].step_numbers()


def test_a_late_joiner_starts_from_the_center_as_it_is(tmp_path) -> None:
    host = LocalHost(tmp_path)
    team = RemoteTeam(sgd, host, count=1).start()
    for seed in range(4):
        team.step(0, seed)
    late = RemoteTeam(sgd, host, count=1).start()
    for own, shared in zip(late.weights(0), team.shared(), strict=True):
        assert torch.equal(own, shared)
    assert host.center.counters.rounds == 2


@pytest.mark.parametrize("commit", COMMITS)
def test_the_default_device_changes_nothing(commit, tmp_path) -> None:
    host = LocalHost(tmp_path)
    weights = [Parameter(torch.ones(2)) for _ in range(2)]
    for weight in weights:
        weight.grad = torch.ones(2)
    with torch.device("meta"):
        for number, weight in enumerate(weights):
            getter = AGNCustomGetter("cpu", center=RemoteCenter(host))
            optimizer = MomentumOptimizer(getter([("w", weight)]), 0.5, 0.5)
            worker = AGNOptimizer(optimizer, 2, getter, 1, commit=commit)
            worker.get_init_op(number)
            worker.step()
    assert [w.tolist() for w in weights] == EXPECTED[commit]


def test_of_two_first_workers_one_fills_the_center_and_both_agree(tmp_path) -> None:
    host = LocalHost(tmp_path)
    getters = [AGNCustomGetter("cpu", center=RemoteCenter(host)) for _ in range(2)]
    weights = [Parameter(torch.full((2,), value)) for value in (1.0, 2.0)]
    workers = [
        AGNOptimizer(torch.optim.SGD(getter([("w", w)]), lr=0.5), 2, getter)
        for getter, w in zip(getters, weights, strict=True)
    ]
    for number, worker in enumerate(workers):
        worker.get_init_op(number)
    assert [w.tolist() for w in weights] == [[1.0, 1.0]] * 2


def test_a_worker_that_dies_loses_its_round_and_a_new_one_rejoins(tmp_path) -> None:
    host = LocalHost(tmp_path)
    team = RemoteTeam(sgd, host, count=2).start()
    team.step(0, 0)
    before = team.shared()
    del team.workers[0], team.models[0]
    for one, other in zip(team.shared(), before, strict=True):
        assert torch.equal(one, other)
    team.step(0, 1), team.step(0, 2)
    fresh = RemoteTeam(sgd, host, count=1).start()
    fresh.step(0, 3), fresh.step(0, 4)
    assert host.center.counters.rounds == 2


def test_a_crash_goes_back_to_the_checkpoint_and_pushes_go_on(tmp_path) -> None:
    host = LocalHost(tmp_path, every=3)
    team = RemoteTeam(lambda p: MomentumOptimizer(p, 0.1, 0.9), host, 1, 1).start()
    for seed in range(5):
        team.step(0, seed)
    host.crash()
    team.step(0, 5)
    assert host.center.counters.rounds == 4
    assert "begin" in host.calls[-3:]


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path) -> None:
    team = RemoteTeam(ALL["Adam"], LocalHost(tmp_path), 1, 1).start()
    team.step(0)
    host = LocalHost(tmp_path)
    with pytest.raises(ValueError, match="AGNOptimizer: expected"):
        RemoteTeam(ALL["SGD momentum"], host, 1)
    assert not host.exists()
    again = RemoteTeam(ALL["Adam"], LocalHost(tmp_path), 1, 1).start()
    again.step(0)
    assert again.host.center.counters.rounds == 2


def test_the_state_of_a_worker_is_its_own(tmp_path) -> None:
    host = LocalHost(tmp_path)
    team = RemoteTeam(ALL["TF1 Adam"], host, count=1).start()
    for seed in range(3):
        team.step(0, seed)
    saved = team.workers[0].state_dict()
    keys = {key for entry in saved["state"].values() for key in entry}
    assert {key for key in keys if key.startswith("agn/")} == {"agn/accumulator"}
    assert not any("center" in key for key in saved["param_groups"][0])
    before = team.shared()
    fresh = RemoteTeam(ALL["TF1 Adam"], host, 1, period=5)
    fresh.workers[0].load_state_dict(copy.deepcopy(saved))
    assert fresh.workers[0].local_step == 3
    assert fresh.workers[0].communication_period == 2
    again = fresh.workers[0].state_dict()["state"]
    for number, entry in saved["state"].items():
        assert torch.equal(again[number]["agn/accumulator"], entry["agn/accumulator"])
    for one, other in zip(team.shared(), before, strict=True):
        assert torch.equal(one, other)


def test_a_state_that_holds_a_center_is_refused(tmp_path) -> None:
    team = Team(sgd, 1).start()
    team.step(0)
    ours = RemoteTeam(sgd, LocalHost(tmp_path), 1)
    with pytest.raises(UnsupportedError, match="such a center loads its own checkpo"):
        ours.workers[0].load_state_dict(team.workers[0].state_dict())


def test_slots_of_the_center_are_not_here_but_its_weights_are(tmp_path) -> None:
    team = RemoteTeam(sgd, LocalHost(tmp_path), 1).start()
    team.step(0, 0), team.step(0, 1)
    worker, own = team.workers[0], next(team.models[0].parameters())
    shared = worker.get_slot(own, GLOBAL_VARIABLE_NAME)
    assert torch.equal(shared, own)
    assert worker.get_slot(shared, "momentum") is None


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))],
    ids=["copy", "pickle"],
)
def test_a_copy_is_another_worker(copied, tmp_path) -> None:
    """With the name of the first its pushes would be taken for repeated ones."""
    weight = Parameter(torch.zeros(1))
    getter = AGNCustomGetter("cpu", center=RemoteCenter(LocalHost(tmp_path)))
    worker = AGNOptimizer(torch.optim.SGD(getter([weight]), lr=1.0), 1, getter, 1)
    weight.grad = torch.ones(1)
    worker.step()
    twin, own = copied((worker, weight))
    own.grad = torch.ones(1)
    twin.step()
    assert own.tolist() == [-2.0]


def test_two_getters_of_a_process_are_two_workers(tmp_path) -> None:
    first = AGNCustomGetter("cpu", center=RemoteCenter(LocalHost(tmp_path)))
    second = AGNCustomGetter("cpu", center=first.center)
    names = [getter.center.member.identity.worker for getter in (first, second)]
    assert names[0] != names[1]


def test_a_loop_ends_where_training_was_ended(tmp_path) -> None:
    team = RemoteTeam(sgd, LocalHost(tmp_path), 1, 1)
    steps = 0
    with team.workers[0].make_session_run_hook(is_chief=True, task_index=0):
        for seed in range(5):
            team.step(0, seed)
            steps += 1
            if seed == 2:
                team.host.call("end")
    assert steps == 3
    assert team.host.calls[-1] == "leave"
    with pytest.raises(TrainingEndedError):
        RemoteTeam(sgd, team.host, 1)
