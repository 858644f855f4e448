"""Workers whose center is in another process: the same bits, and no state here."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from torch.nn import Parameter

from lockstep.errors import (
    DtypeError,
    OutOfRangeError,
    TrainingEndedError,
    UnsupportedError,
)
from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.agn_center import RemoteCenter
from lockstep.pytorch.tests.agn_teams import (
    RemoteTeam,
    Team,
    assert_follows_a_schedule,
    same,
    sgd,
    single,
)
from lockstep.pytorch.tests.subjects import ALL
from lockstep.ray.tests.local_host import LocalHost

COMMITS = ["gradient", "delta"]
ORDER = [0, 1, 1, 2, 0, 2, 0, 0, 1, 1, 2, 2, 2, 2]


def stack(params):
    """Return an optimizer with wrappers inside, one with rows of its own."""
    params = list(params)
    rows = VariableClippingOptimizer(
        MomentumOptimizer(params, 0.1, 0.9), {params[0]: [0]}, max_norm=0.3
    )
    return MultitaskOptimizerWrapper(rows)


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("name", [*ALL, "wrappers"])
def test_the_center_moves_as_that_of_one_process(name, commit, tmp_path) -> None:
    """A crash with a checkpoint of each round and a lost reply change no bit."""
    make, host = ALL.get(name, stack), LocalHost(tmp_path)
    ours = RemoteTeam(make, host, commit=commit).start()
    theirs = Team(make, 3, commit=commit).start()
    for seed, number in enumerate(ORDER):
        if seed == 6:
            host.lost = 1
        ours.step(number, seed)
        theirs.step(number, seed)
        if seed == 9:
            host.crash()
    for one, other in zip(ours.shared(), theirs.shared(), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()
    assert host.center.counters.repeated == 1
    assert host.center.counters.rounds == 7


def test_a_schedule_of_the_worker_is_followed(tmp_path) -> None:
    center = RemoteCenter(LocalHost(tmp_path))
    assert_follows_a_schedule(*single(period=1, center=center))


def test_a_round_is_one_call_and_can_be_logged(tmp_path) -> None:
    team = RemoteTeam(sgd, LocalHost(tmp_path), 2, 1).start()
    team.host.calls.clear()
    for number in (1, 0, 1):
        team.step(number)
    assert team.host.calls == ["push", "push", "push"]
    numbers = team.workers[1].step_numbers()
    assert numbers["center_rounds"] == 3
    assert numbers["staleness"] == 1
    assert numbers["pushed_bytes"] == 2 * 4 * 9
    assert "staleness" not in Team(sgd, 1).start().workers[0].step_numbers()


def test_workers_join_late_die_and_rejoin(tmp_path) -> None:
    host = LocalHost(tmp_path)
    team = RemoteTeam(sgd, host, count=2).start()
    assert same(team.weights(0), team.weights(1))
    team.step(0, 0)
    before = team.shared()
    del team.workers[0], team.models[0]
    assert same(team.shared(), before)
    team.step(0, 1), team.step(0, 2)
    late = RemoteTeam(sgd, host, count=1).start()
    assert same(late.weights(0), team.shared())
    late.step(0, 3), late.step(0, 4)
    assert host.center.counters.rounds == 2


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path) -> None:
    team = RemoteTeam(ALL["Adam"], LocalHost(tmp_path), 1, 1).start()
    team.step(0)
    host = LocalHost(tmp_path)
    with pytest.raises(UnsupportedError):
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
    assert "weights" not in saved["agn"]
    before = team.shared()
    fresh = RemoteTeam(ALL["TF1 Adam"], host, 1, period=5)
    fresh.workers[0].load_state_dict(deepcopy(saved))
    assert fresh.workers[0].local_step == 3
    assert fresh.workers[0].communication_period == 2
    again = fresh.workers[0].state_dict()["agn"]["accumulators"]
    assert same(again.values(), saved["agn"]["accumulators"].values())
    assert same(team.shared(), before)
    with_center = Team(ALL["TF1 Adam"], 1).start().workers[0].state_dict()
    with pytest.raises(UnsupportedError):
        fresh.workers[0].load_state_dict(with_center)


@pytest.mark.parametrize(
    "copied",
    [deepcopy, lambda value: pickle.loads(pickle.dumps(value))],
    ids=["copy", "pickle"],
)
def test_a_copy_is_another_worker(copied, tmp_path) -> None:
    """With the name of the first its pushes would be taken for repeated ones."""
    weight, worker = single(period=1, center=RemoteCenter(LocalHost(tmp_path)))
    weight.grad = torch.ones(3)
    worker.step()
    twin, own = copied((worker, weight))
    own.grad = torch.ones(3)
    twin.step()
    assert own.tolist() == [0.0, 1.0, 2.0]


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


# Refusals


def test_a_push_with_nan_is_refused_and_a_new_round_goes_on(tmp_path) -> None:
    team = RemoteTeam(sgd, LocalHost(tmp_path), 1, 1).start()
    (weight, *_), worker = team.models[0].parameters(), team.workers[0]
    before = team.shared()
    weight.grad = torch.full_like(weight, float("nan"))
    with pytest.raises(OutOfRangeError):
        worker.step()
    assert same(team.shared(), before)
    worker.get_init_op(0)
    team.step(0)
    assert team.host.center.counters.rounds == 1


def join(host, commit="gradient", **named) -> AGNCustomGetter:
    getter = AGNCustomGetter("cpu", center=RemoteCenter(host))
    opt = torch.optim.SGD(getter(named.items()), lr=0.5)
    AGNOptimizer(opt, 2, getter, commit=commit)
    return getter


MISFITS = {
    "shape": {"w": Parameter(torch.ones(3))},
    "dtype": {"w": Parameter(torch.ones(2).double())},
    "name": {"v": Parameter(torch.ones(2))},
    "commit": {"w": Parameter(torch.ones(2)), "commit": "delta"},
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_worker_that_does_not_fit_is_refused(misfit, tmp_path) -> None:
    host = LocalHost(tmp_path)
    first = join(host, w=Parameter(torch.ones(2)))
    with pytest.raises(UnsupportedError):
        join(host, **MISFITS[misfit])
    with pytest.raises(UnsupportedError):
        first([("late", Parameter(torch.ones(2)))])
    assert host.center.present()["w"].tolist() == [1.0, 1.0]


def test_a_dtype_that_numpy_lacks_is_refused(tmp_path) -> None:
    with pytest.raises(DtypeError):
        join(LocalHost(tmp_path), w=Parameter(torch.ones(2, dtype=torch.bfloat16)))
