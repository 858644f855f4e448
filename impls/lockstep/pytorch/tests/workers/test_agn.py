"""Workers of one process that share a center: what parity does not look at."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from lockstep import pytorch, reference
from lockstep.messages.workers.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME
from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.tests.subjects import ALL
from lockstep.pytorch.tests.workers.worker_pairs import (
    Team,
    assert_follows_a_schedule,
    same,
    sgd,
    single,
)
from lockstep.pytorch.workers.center import Center


def test_workers_of_one_process_share_one_center() -> None:
    team = Team(sgd).start()
    assert same(team.weights(0), team.weights(1))
    assert same(team.weights(0), team.shared())
    team.step(0, 1)
    assert not same(team.weights(0), team.shared())
    team.step(1, 2)
    team.step(0, 3)
    assert same(team.weights(0), team.shared())
    assert not same(team.weights(1), team.shared())
    team.step(1, 4)
    assert same(team.weights(1), team.shared())


def test_a_late_joiner_starts_from_the_center_as_it_is() -> None:
    team = Team(sgd, count=1).start()
    for seed in range(4):
        team.step(0, seed)
    with torch.random.fork_rng():
        torch.manual_seed(9)
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    getter = AGNCustomGetter("cpu", center=team.center)
    late = AGNOptimizer(sgd(getter(model)), 2, getter, 2)
    with late.make_session_run_hook(is_chief=False, task_index=1):
        assert same([p.detach() for p in model.parameters()], team.shared())


def test_the_centers_state_belongs_to_all_and_the_workers_is_not_reset() -> None:
    team = Team(lambda p: MomentumOptimizer(p, 0.1, 0.9)).start()
    one, other = team.workers
    shared = next(iter(team.center.parameters.values()))
    team.step(0)
    team.step(0)
    pushed = one.get_slot(shared, "momentum").clone()
    assert pushed.any()
    assert torch.equal(other.get_slot(shared, "momentum"), pushed)
    own = next(team.models[0].parameters())
    assert one.get_slot(own, "momentum").any()
    team.step(1)
    team.step(1)
    assert not torch.equal(one.get_slot(shared, "momentum"), pushed)


def test_a_period_counts_steps_not_groups() -> None:
    a, b = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    getter = AGNCustomGetter("cpu")
    getter([("a", a), ("b", b)])
    groups = [{"params": [a]}, {"params": [b], "lr": 0.25}]
    worker = AGNOptimizer(torch.optim.SGD(groups, lr=0.5), 1, getter, 3)
    worker.get_init_op(0)
    for count in (1, 2, 3):
        a.grad, b.grad = torch.ones(2), torch.ones(2)
        worker.step()
        assert worker.local_step == count
        assert worker.took_step() == (count == 3)
    assert torch.equal(a, torch.full((2,), 0.5))
    assert torch.equal(b, torch.full((2,), 0.75))


def test_a_schedule_of_the_worker_is_followed_at_the_center() -> None:
    weight, worker = single(period=1)
    assert_follows_a_schedule(weight, worker)


def test_a_group_that_is_added_later_reaches_the_center() -> None:
    weight, worker = single(period=1)
    later = Parameter(torch.tensor([4.0]))
    worker.custom_getter([("later", later)])
    worker.add_param_group({"params": [later], "lr": 1.0})
    later.grad = torch.ones(1)
    worker.step()
    assert later.item() == 3.0
    assert worker.custom_getter.center.parameters["later"].item() == 3.0
    assert weight.tolist() == [1.0, 2.0, 3.0]


def test_absent_gradients_are_neither_pushed_nor_pulled() -> None:
    a, b = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    getter = AGNCustomGetter("cpu")
    opt = torch.optim.SGD(getter([("a", a), ("b", b)]), lr=0.5)
    worker = AGNOptimizer(opt, 1, getter, 2)
    a.grad, b.grad = torch.ones(2), torch.ones(2)
    worker.step()
    b.grad = None
    worker.step()
    assert torch.equal(a, torch.full((2,), 0.5))
    assert torch.equal(getter.center.parameters["b"], torch.ones(2))
    assert torch.equal(b, torch.full((2,), 0.5))
    assert torch.equal(worker.get_slot(b, GRAD_VARIABLE_NAME), torch.ones(2))
    assert worker.last_step.skipped == ("param_groups[0]['params'][1]",)


def test_a_step_without_any_gradient_is_no_local_step() -> None:
    weight, worker = single()
    worker.step()
    assert worker.local_step == 0
    assert not worker.last_step.applied
    counter = torch.zeros((), dtype=torch.int64)
    with pytest.raises(ValueError, match="a gradient for at least one"):
        worker.apply_gradients([(None, weight)], counter)


def test_global_step_counts_the_rounds_of_all_workers() -> None:
    counter = torch.zeros((), dtype=torch.int64)
    team = Team(sgd, period=3).start()
    for number in (0, 1, 0, 1, 0, 1, 1):
        pairs = [(torch.ones_like(p), p) for p in team.models[number].parameters()]
        team.workers[number].apply_gradients(pairs, counter)
    assert counter.item() == 2


def test_a_sparse_gradient_is_gathered_as_its_sum() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    getter = AGNCustomGetter("cpu")
    worker = AGNOptimizer(torch.optim.SGD(getter(table), lr=0.5), 1, getter, 2)
    table(torch.tensor([1, 1, 3])).sum().backward()
    worker.step()
    gathered = worker.get_slot(table.weight, GRAD_VARIABLE_NAME)
    assert gathered.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


@pytest.mark.parametrize("name", ["SGD", "GradientDescent"])
def test_differences_are_gradients_under_gradient_descent(name) -> None:
    found = []
    for commit in ("gradient", "delta"):
        team = Team(ALL[name], period=3, commit=commit).start()
        for number in (0, 1, 1, 0, 0, 1):
            team.step(number, number)
        found.append(team.shared())
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_differences_leave_the_centers_state_alone() -> None:
    team = Team(lambda p: MomentumOptimizer(p, 0.1, 0.9), commit="delta").start()
    before = team.shared()
    team.step(0)
    team.step(0)
    assert not same(team.shared(), before)
    assert not team.center.optimizer.state


@pytest.mark.parametrize("commit", ["gradient", "delta"])
@pytest.mark.parametrize(
    "name", ["GradientDescentOptimizer", "MomentumOptimizer", "AdagradOptimizer"]
)
def test_the_default_is_the_references(name, commit) -> None:
    arguments = {"learning_rate": 0.1}
    arguments |= {"momentum": 0.9} if name == "MomentumOptimizer" else {}
    generator = torch.Generator().manual_seed(5)
    ours, theirs, center, other = [], [], None, None
    for _ in range(3):
        getter = AGNCustomGetter("cpu", center=center)
        twin = reference.AGNCustomGetter("cpu", center=other)
        center, other = getter.center, twin.center
        weight = Parameter(torch.tensor([0.25, -0.5]))
        value = reference.Variable("0", weight.detach().numpy().copy())
        opt = getattr(pytorch, name)(getter([weight]), **arguments)
        base = getattr(reference, name)(**arguments)
        ours.append((weight, AGNOptimizer(opt, 3, getter, 2, commit=commit)))
        (value,) = twin([value])
        worker = reference.AGNOptimizer(base, 3, twin, 2, commit=commit)
        theirs.append((value, worker))
    for number in (0, 1, 1, 2, 0, 2, 0, 0, 1, 2, 1, 2):
        gradient = torch.randn(2, generator=generator)
        weight, worker = ours[number]
        worker.apply_gradients([(gradient, weight)])
        value, worker = theirs[number]
        worker.apply_gradients([(gradient.numpy(), value)])
        torch.testing.assert_close(
            weight.detach(), torch.from_numpy(value.value), rtol=0, atol=1e-7
        )


def test_the_default_shows_its_slots_and_the_wrapped_optimizers() -> None:
    weight, worker = single(lambda p: MomentumOptimizer(p, 0.5, 0.9))
    names = ["momentum", GRAD_VARIABLE_NAME, GLOBAL_VARIABLE_NAME]
    assert worker.get_slot_names() == names
    assert all(worker.get_slot(weight, name) is not None for name in names)
    assert worker.get_slot(torch.ones(3), GRAD_VARIABLE_NAME) is None
    assert len(worker.variables()) == 3


def test_a_center_may_live_on_another_device_than_its_workers() -> None:
    center = Center(device="meta")
    getter = AGNCustomGetter("cpu", center=center)
    (weight,) = getter([Parameter(torch.ones(2))])
    assert getter._global_map[weight].device.type == "meta"
    assert getter._grad_map[weight].device.type == "cpu"


def test_wrappers_go_inside() -> None:
    weight = Parameter(torch.tensor([3.0, 4.0]))
    getter = AGNCustomGetter("cpu")
    opt = torch.optim.SGD(getter([("w", weight)]), lr=1.0)
    opt = VariableClippingOptimizer(opt, {weight: [0]}, max_norm=2.5)
    worker = AGNOptimizer(MultitaskOptimizerWrapper(opt), 1, getter, 1)
    worker.get_init_op(0)
    weight.grad = torch.tensor([1e-30, 0.0])
    worker.step()
    assert weight.tolist() == [1.5, 2.0]
    assert getter.center.parameters["w"].tolist() == [1.5, 2.0]
    assert "a nonzero element; local step 1" in worker.last_step.reason


def test_a_loss_scale_goes_outside() -> None:
    weight, worker = single(period=1)
    scaled = MixedPrecisionLossScaleOptimizer(worker, 8.0)
    scaled.scale_loss((weight * torch.tensor([1.0, 2.0, 4.0])).sum()).backward()
    scaled.step()
    assert weight.tolist() == [0.5, 1.0, 1.0]
    with pytest.raises(ValueError, match="the loss scale around AGNOptimizer"):
        AGNOptimizer(scaled, 1, worker.custom_getter)


def test_frozen_parameters_pass_through_the_getter() -> None:
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    getter = AGNCustomGetter("cpu")
    assert [p is q for p, q in zip(getter(model), model.parameters(), strict=True)]
    assert list(getter.center.parameters) == ["weight"]
    assert getter(model) and len(getter._grad_map) == 1


def test_an_iterator_of_pairs_is_read_once_and_kept() -> None:
    weight, worker = single()
    worker.apply_gradients(iter([(torch.ones(3), weight)]))
    assert worker.get_slot(weight, GRAD_VARIABLE_NAME).tolist() == [1.0, 1.0, 1.0]


def test_a_step_does_not_put_together_what_a_checkpoint_shows(monkeypatch):
    team = Team(lambda p: torch.optim.Adam(p, 0.1), count=1, period=100).start()
    team.step(0)

    def refuse(*arguments):
        raise AssertionError("the state was put together")

    monkeypatch.setattr("lockstep.pytorch.workers.agn.shown", refuse)
    team.step(0)
    assert team.workers[0].local_step == 2


@pytest.mark.parametrize("at_once", [False, True])
def test_gradients_are_pushed_as_they_were_before_nesterovs_momentum(at_once) -> None:
    """torch's SGD adds the momentum to them if it updates all tensors at once."""
    weight, getter = Parameter(torch.zeros(1)), AGNCustomGetter("cpu")
    getter([weight])
    opt = torch.optim.SGD([weight], 0.5, 0.5, nesterov=True, foreach=at_once)
    worker = AGNOptimizer(opt, 1, getter, communication_period=2)
    for gradient in (1.0, 3.0):
        weight.grad = torch.tensor([gradient])
        worker.step()
    assert weight.item() == -0.5 * 1.5 * 2
