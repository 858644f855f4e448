"""Workers of one process that share a center: what the recorded cases do not cover."""

from __future__ import annotations

import pickle
import sys
from copy import deepcopy
from threading import Barrier, Thread

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.nn import Parameter

from lockstep import pytorch, reference
from lockstep.errors import (
    GetterError,
    NotFromGetterError,
    UnsupportedError,
)
from lockstep.interface import NO_GRADIENTS
from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    MomentumOptimizer,
)
from lockstep.pytorch.agn_center import Center
from lockstep.pytorch.tests.agn_teams import (
    Team,
    assert_follows_a_schedule,
    same,
    sgd,
    single,
)
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, assert_same_bits, train

COMMITS = ["gradient", "delta"]
SHARED, GATHERED = AGNOptimizer.GLOBAL_VARIABLE_NAME, AGNOptimizer.GRAD_VARIABLE_NAME
COPIES = {"copy": deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}
copies = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
commits = pytest.mark.parametrize("commit", COMMITS)


def vector(*shape: int) -> Parameter:
    return Parameter(torch.ones(shape or 2))


# Rounds


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
    late = Team(sgd, count=1)
    getter = AGNCustomGetter("cpu", center=team.center)
    worker = AGNOptimizer(sgd(getter(late.models[0])), 2, getter, 2)
    with worker.make_session_run_hook(is_chief=False, task_index=1):
        assert same(late.weights(0), team.shared())


def test_a_period_counts_steps_not_groups() -> None:
    a, b = vector(), vector()
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
    assert (a.tolist(), b.tolist()) == ([0.5] * 2, [0.75] * 2)


def test_a_schedule_of_the_worker_is_followed_at_the_center() -> None:
    assert_follows_a_schedule(*single(period=1))


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


def test_a_group_that_differs_from_another_workers_is_not_added() -> None:
    _, first = single(period=1)
    later = Parameter(torch.ones(1))
    first.custom_getter([("later", later), ("other", Parameter(torch.ones(1)))])
    first.add_param_group({"params": [later]})
    center = first.custom_getter.center
    getter = AGNCustomGetter("cpu", center=center)
    own = {name: Parameter(p.detach().clone()) for name, p in center.parameters.items()}
    getter(own.items())
    sgd = torch.optim.SGD([next(iter(own.values()))], lr=0.5)
    second = AGNOptimizer(sgd, 1, getter, 1)
    with pytest.raises(ValueError, match="in the same groups"):
        second.add_param_group({"params": [own["other"]]})
    assert len(second.param_groups) == 1
    second.add_param_group({"params": [own["later"]]})


def test_a_step_without_any_gradient_is_no_local_step() -> None:
    weight, worker = single()
    worker.apply_gradients([(torch.ones(3), weight)])
    worker.step()
    assert worker.local_step == 1
    assert worker.last_step == NO_GRADIENTS
    with pytest.raises(ValueError, match="expected a gradient, got None"):
        worker.apply_gradients([(None, weight)])


@commits
@pytest.mark.parametrize("name", ["GradientDescent", "Momentum", "Adagrad"])
def test_the_default_is_the_references(name, commit) -> None:
    arguments = {"learning_rate": 0.1}
    arguments |= {"momentum": 0.9} if name == "Momentum" else {}
    generator = torch.Generator().manual_seed(5)
    ours, theirs, center, other = [], [], None, None
    for _ in range(3):
        getter = AGNCustomGetter("cpu", center=center)
        twin = reference.AGNCustomGetter("cpu", center=other)
        center, other = getter.center, twin.center
        weight = Parameter(torch.tensor([0.25, -0.5]))
        value = reference.Variable("0", weight.detach().numpy().copy())
        opt = getattr(pytorch, f"{name}Optimizer")(getter([weight]), **arguments)
        base = getattr(reference, f"{name}Optimizer")(**arguments)
        ours.append((weight, AGNOptimizer(opt, 3, getter, 2, commit=commit)))
        (value,) = twin([value])
        theirs.append((value, reference.AGNOptimizer(base, 3, twin, 2, commit=commit)))
    for number in (0, 1, 1, 2, 0, 2, 0, 0, 1, 2, 1, 2):
        gradient = torch.randn(2, generator=generator)
        (weight, worker), (value, twin) = ours[number], theirs[number]
        worker.apply_gradients([(gradient, weight)])
        twin.apply_gradients([(gradient.numpy(), value)])
        torch.testing.assert_close(
            weight.detach(), torch.from_numpy(value.value), rtol=0, atol=0
        )


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


def test_slots_are_the_wrapped_optimizers_and_two_more() -> None:
    weight, worker = single(lambda p: MomentumOptimizer(p, 0.5, 0.9))
    assert worker.get_slot_names() == ["momentum", GATHERED, SHARED]
    assert all(worker.get_slot(weight, n) is not None for n in worker.get_slot_names())
    assert worker.get_slot(torch.ones(3), GATHERED) is None
    assert len(worker.variables()) == 3


def test_a_center_may_live_on_another_device_than_its_workers() -> None:
    getter = AGNCustomGetter("cpu", center=Center(device="meta"))
    (weight,) = getter([vector()])
    assert getter._global_map[weight].device.type == "meta"
    assert getter._grad_map[weight].device.type == "cpu"


# Other wrappers


# The getter, and arguments


def test_names_of_parameters() -> None:
    """A module has its own, a prefix tells two apart, others have free numbers."""
    encoder, decoder = nn.Linear(2, 2), nn.Linear(2, 2)
    decoder.bias.requires_grad_(False)
    getter = AGNCustomGetter("cpu")
    assert all(map(lambda a, b: a is b, getter(encoder), encoder.parameters()))
    with pytest.raises(UnsupportedError):
        getter(decoder)
    assert list(getter.center.parameters) == ["weight", "bias"]
    getter(decoder.named_parameters(prefix="decoder"))
    assert list(getter.center.parameters) == ["weight", "bias", "decoder.weight"]
    unnamed = AGNCustomGetter("cpu")
    a, b, c = vector(), vector(), vector()
    for group in ([decoder.bias, a], [b], [b, c], [vector()]):
        unnamed(group)
    assert len(unnamed.center.parameters) == len(set(unnamed.names.values())) == 4


def test_only_the_worker_that_registers_first_adds_names() -> None:
    maker = AGNCustomGetter("cpu")
    first = AGNCustomGetter("cpu", center=maker.center)
    first([("w", vector()), ("v", vector())])
    for misfit in (("x", vector()), ("v", vector(3)), ("v", vector().double())):
        with pytest.raises(UnsupportedError):
            maker([("w", vector()), misfit])
    assert not maker._global_map
    later = vector()
    first([("later", vector())])
    maker([("later", later)])
    assert maker._global_map[later] is first.center.parameters["later"]


WRONG_PARAMETERS = {
    "a word": "w",
    "a dict": {"w": vector()},
    "a tensor": vector(),
    "no parameters": [None],
    "swapped pairs": [(vector(), "w")],
}


@pytest.mark.parametrize("name", WRONG_PARAMETERS)
def test_the_getter_takes_only_parameters(name: str) -> None:
    with pytest.raises(GetterError):
        AGNCustomGetter("cpu")(WRONG_PARAMETERS[name])


def test_the_getter_refuses_other_centers() -> None:
    for center in (AGNCustomGetter("cpu"), "c"):
        with pytest.raises(GetterError):
            AGNCustomGetter("cpu", center=center)


def test_a_parameter_that_the_getter_does_not_have_is_refused_before_the_step() -> None:
    weight, stranger = vector(), vector()
    getter = AGNCustomGetter("cpu")
    getter([weight])
    worker = AGNOptimizer(torch.optim.SGD([weight, stranger], lr=0.1), 1, getter)
    weight.grad = stranger.grad = torch.ones(2)
    with pytest.raises(NotFromGetterError):
        worker.step()
    assert weight.tolist() == [1.0, 1.0]
    assert worker.local_step == 0


def test_workers_with_other_groups_are_refused() -> None:
    first = AGNCustomGetter("cpu")
    own = first([(name, vector()) for name in "wv"])
    AGNOptimizer(sgd(own[:1]), 2, first)
    other = AGNCustomGetter("cpu", center=first.center)
    with pytest.raises(UnsupportedError):
        AGNOptimizer(sgd(other([("v", vector())])), 2, other)


# State


@pytest.mark.parametrize("name", ALL)
def test_copies_have_a_center_of_their_own_and_a_loaded_state_is_the_saved(name):
    team = Team(ALL[name], count=1, period=2).start()
    for seed in range(3):
        team.step(0, seed)
    twin = deepcopy(team)
    before = team.shared()
    twin.step(0, 3)
    assert same(team.shared(), before)
    team.step(0, 3)
    assert same(team.shared(), twin.shared())
    team.step(0, 4)
    fresh = Team(ALL[name], count=1, period=7)
    fresh.workers[0].load_state_dict(deepcopy(team.workers[0].state_dict()))
    assert fresh.workers[0].local_step == 5
    assert fresh.workers[0].communication_period == 2
    assert_same_bits(flat(fresh), flat(team))
    assert same(fresh.shared(), team.shared())


def flat(team: Team) -> dict[str, torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves_with_path(team.workers[0].state_dict())
    return {
        str(path): torch.as_tensor(value).clone()
        for path, value in leaves
        if isinstance(value, int | float | torch.Tensor)
    }


def test_a_worker_is_pickled_with_its_center() -> None:
    weight, worker = pickle.loads(pickle.dumps(single()))
    weight.grad = torch.ones(3)
    worker.step()
    worker.step()
    assert torch.equal(weight, worker.custom_getter.center.parameters["0"])


def trained(commit="gradient", period=3, name="SGD momentum"):
    """Return a model that has taken four steps, and the optimizer of its worker."""
    model, getter = TwoHeads(), AGNCustomGetter("cpu")
    optimizer = ALL[name](list(zip("012345", getter(model), strict=True)))
    worker = AGNOptimizer(optimizer, 1, getter, period, commit=commit)
    train(model, worker, "++++")
    return model, worker


def assert_refuses(worker: AGNOptimizer, saved) -> None:
    before = str(worker.state_dict())
    with pytest.raises(ValueError, match="AGNOptimizer"):
        worker.load_state_dict(saved)
    assert str(worker.state_dict()) == before


@commits
def test_only_a_state_of_the_same_commit_is_loaded_or_that_of_a_bare_one(commit):
    for saved in COMMITS:
        state, (_, worker) = trained(saved)[1].state_dict(), trained(commit)
        if saved == commit:
            worker.load_state_dict(state)
        else:
            assert_refuses(worker, state)
    model = TwoHeads()
    bare = ALL["SGD momentum"](model.parameters())
    train(model, bare, "+")
    model, worker = trained(commit)
    worker.load_state_dict(bare.state_dict())
    train(model, worker, "+")
    assert worker.local_step == 5


WRONG_STATES = {
    "accumulator": lambda own: own["accumulators"].update({"a.bias": torch.ones(7)}),
    "no accumulator": lambda own: own["accumulators"].popitem(),
    "center": lambda own: own["weights"].update({"a.bias": torch.ones(7)}),
    "no center": lambda own: own.pop("weights"),
    "period 0": lambda own: own.update(communication_period=0),
    "period x": lambda own: own.update(communication_period="x"),
    "local step": lambda own: own.update(local_step=-1),
}


@pytest.mark.parametrize("name", WRONG_STATES)
def test_a_state_with_wrong_parts_is_refused_and_changes_nothing(name) -> None:
    saved = deepcopy(trained()[1].state_dict())
    WRONG_STATES[name](saved["agn"])
    assert_refuses(trained()[1], saved)


def test_distributed_checkpoints_are_refused() -> None:
    team = Team(ALL["SGD"], 1)
    model, worker = team.models[0], team.workers[0]
    with pytest.raises(UnsupportedError, match="leaves the shared weights out"):
        checkpoint.get_optimizer_state_dict(model, worker)


@commits
@pytest.mark.parametrize("name", ["SGD", "SGD momentum", "Adam", "TF1 Adam"])
def test_a_layer_that_is_unfrozen_and_registered_again_is_shared(name, commit) -> None:
    models, workers, center = [], [], None
    for _ in range(2):
        model = nn.Linear(2, 1)
        model.bias.requires_grad_(False)
        getter = AGNCustomGetter("cpu", center=center)
        center = getter.center
        models.append(model)
        opt = ALL[name](getter(model))
        workers.append(AGNOptimizer(opt, 2, getter, 1, commit=commit))

    def step(number: int) -> None:
        workers[number].zero_grad()
        models[number](torch.ones(1, 2)).sum().backward()
        workers[number].step()

    step(0), step(1)
    for model in models:
        model.bias.requires_grad_(True)
    with pytest.raises(NotFromGetterError):
        step(0)
    for model, each in zip(models, workers, strict=True):
        each.custom_getter(model)
    start = center.parameters["bias"].item()
    for number in (0, 1):
        step(number)
        assert models[number].bias.item() == center.parameters["bias"].item()
    assert center.parameters["bias"].item() < start - 0.1
    workers[1].load_state_dict(deepcopy(workers[1].state_dict()))


# Threads

THREADS, STEPS = 4, 200


@pytest.fixture
def hasty_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run(targets) -> None:
    threads = [Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@commits
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_every_push_of_every_thread_counts(name, commit, hasty_threads) -> None:
    """Adam with a gradient of one moves by the rate at each step."""
    rule, center = getattr(torch.optim, name), Center()

    def train_one(weight, worker):
        for _ in range(STEPS):
            weight.grad = torch.ones(3)
            worker.step()

    pairs = [
        single(lambda params: rule(params, lr=1.0), 1, center, commit)
        for _ in range(THREADS)
    ]
    run([lambda pair=pair: train_one(*pair) for pair in pairs])
    expected = [start - THREADS * STEPS for start in (1.0, 2.0, 3.0)]
    assert center.parameters["0"].tolist() == pytest.approx(expected, rel=1e-6)


def test_no_pull_and_no_push_comes_between_a_push() -> None:
    """A thread that comes while a push is applied still waits after .2 seconds."""
    weight, worker = single(period=1)
    center, waiting = worker.custom_getter.center, []

    def slow(*_) -> None:
        others = [
            Thread(target=center.pull, args=(["0"],), daemon=True),
            Thread(target=center.push, args=({"0": torch.zeros(3)}, None), daemon=True),
        ]
        for other in others:
            other.start()
        for other in others:
            other.join(0.2)
            waiting.append(other.is_alive())

    center.optimizer.register_step_pre_hook(slow)
    weight.grad = torch.ones(3)
    worker.step()
    assert waiting == [True, True]


def test_workers_that_are_made_at_once_share_all_weights(hasty_threads) -> None:
    for _ in range(20):
        center, begin, counts = Center(), Barrier(THREADS), []

        def train_one(center=center, begin=begin, counts=counts) -> None:
            model = nn.Sequential(*[nn.Linear(2, 1) for _ in range(4)])
            begin.wait(60)
            getter = AGNCustomGetter("cpu", center=center)
            worker = AGNOptimizer(sgd(getter(model)), THREADS, getter, 1)
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            worker.step()
            counts.append(len(center.parameters))

        run([train_one] * THREADS)
        assert counts == [8] * THREADS


@copies
def test_pulls_and_copies_are_independent_of_the_center(copied) -> None:
    weight, worker = single(period=1)
    center = worker.custom_getter.center
    pulled = center.pull(["0"])["0"]
    worker.apply_gradients([(torch.ones(3), weight)])
    assert pulled.tolist() == [1.0, 2.0, 3.0]
    with center.lock:
        thread = Thread(target=copied(center).pull, args=(["0"],), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
