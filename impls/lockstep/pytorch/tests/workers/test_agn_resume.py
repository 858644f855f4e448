"""AGN's workers are copied, pickled, saved, and go on."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from torch.nn import Parameter

from lockstep.messages.workers.agn import GRAD_VARIABLE_NAME
from lockstep.pytorch.tests.subjects import ALL, assert_same_bits
from lockstep.pytorch.tests.workers.worker_pairs import Team, same, sgd, single


@pytest.mark.parametrize("name", ALL)
def test_a_copy_goes_on_with_a_center_of_its_own(name) -> None:
    team = Team(ALL[name], count=1, period=2).start()
    for seed in range(3):
        team.step(0, seed)
    twin = deepcopy(team)
    before = team.shared()
    twin.step(0, 3)
    assert same(team.shared(), before)
    team.step(0, 3)
    assert same(team.shared(), twin.shared())


def test_a_worker_is_pickled_with_its_center() -> None:
    model, worker = pickle.loads(pickle.dumps(single()))
    model.grad = torch.ones(3)
    worker.step()
    worker.step()
    assert same(
        [model.detach()], [worker.custom_getter.center.parameters["0"].detach()]
    )


def saved(team: Team) -> dict[str, torch.Tensor]:
    state = team.workers[0].state_dict()
    return {
        f"{number}/{key}": torch.as_tensor(value).clone()
        for number, entry in state["state"].items()
        for key, value in entry.items()
    }


@pytest.mark.parametrize("name", ALL)
def test_what_is_loaded_is_what_was_saved_the_center_included(name) -> None:
    team = Team(ALL[name], count=1, period=2).start()
    for seed in range(5):
        team.step(0, seed)
    fresh = Team(ALL[name], count=1, period=7)
    fresh.workers[0].load_state_dict(deepcopy(team.workers[0].state_dict()))
    assert fresh.workers[0].local_step == 5
    assert fresh.workers[0].communication_period == 2
    assert_same_bits(saved(fresh), saved(team))
    assert same(fresh.shared(), team.shared())


def grouped(params):
    """Return an optimizer with a group for each parameter."""
    return torch.optim.SGD([{"params": [p]} for p in params], lr=0.1)


def test_a_worker_with_several_groups_resumes_its_counts() -> None:
    team, fresh = Team(grouped, 1, period=2).start(), Team(grouped, 1, period=7)
    for seed in range(5):
        team.step(0, seed)
    fresh.workers[0].load_state_dict(deepcopy(team.workers[0].state_dict()))
    worker = fresh.workers[0]
    assert (worker.local_step, worker.communication_period) == (5, 2)


def test_the_state_of_a_bare_optimizer_leaves_the_workers_own_alone() -> None:
    weight, worker = single(sgd, period=5)
    weight.grad = torch.ones(3)
    worker.step()
    bare = sgd([Parameter(torch.ones(3))])
    worker.load_state_dict(bare.state_dict())
    assert worker.local_step == 1
    assert torch.equal(worker.get_slot(weight, GRAD_VARIABLE_NAME), torch.ones(3))
