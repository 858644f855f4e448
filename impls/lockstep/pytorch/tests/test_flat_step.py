"""Steps of the wrapped optimizer on flat memory: the bits of a tensor at a time."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop

from lockstep.pytorch import MixedPrecisionOptimizerWrapper, flat_step
from lockstep.pytorch.flat_step import Run

SHAPES = [(16,), (4, 8), (3,), (5, 7), (), (32,), (16, 16), (2, 17), (0, 3)]
"""Some fill vectors of 16 elements, some do not, and one is empty."""
ADAM = [
    {},
    {"weight_decay": 0.1},
    {"amsgrad": True},
    {"maximize": True, "betas": (0.5, 0.9), "eps": 1e-3},
]
ACCUMULATES = [{}, {"weight_decay": 0.1}, {"maximize": True}]
MOMENTUM = [
    {"lr": 0.1},
    {"lr": 0.1, "weight_decay": 0.1, "maximize": True},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    {"lr": 0.1, "momentum": 0.9, "dampening": 0.1},
]
MEAN_SQUARE = [{}, {"centered": True}, {"momentum": 0.9, "weight_decay": 0.1}]
RULES = {
    Adam: ADAM,
    AdamW: ADAM,
    SGD: MOMENTUM,
    Adagrad: [*ACCUMULATES, {"lr_decay": 0.1, "initial_accumulator_value": 0.1}],
    RMSprop: MEAN_SQUARE,
}
KERNELS = [{}, {"foreach": True}, {"foreach": False}, {"fused": True}]
CASES = [
    pytest.param(kind, {**options, **kernel}, id=f"{kind.__name__} {options} {kernel}")
    for kind, choices in RULES.items()
    for options in choices
    for kernel in KERNELS
    if not (kind is RMSprop and "fused" in kernel)
]


class Training:
    """Weights, their optimizer, and gradients that depend on the step alone."""

    def __init__(self, kind=Adam, scale=8.0, groups=1, **options):
        rng = torch.Generator().manual_seed(0)
        self.weights = [torch.randn(shape, generator=rng).half() for shape in SHAPES]
        self.weights.append(torch.randn(5, generator=rng))  # its own master
        self.weights = [torch.nn.Parameter(weight) for weight in self.weights]
        options = {"lr": 0.01, **options}
        listed = [{"params": self.weights[k::groups]} for k in range(groups)]
        self.optimizer = MixedPrecisionOptimizerWrapper(kind(listed, **options), scale)
        self.taken = 0

    def fill(self, absent=()):
        """Let all weights but the absent ones have gradients of this step."""
        rng = torch.Generator().manual_seed(self.taken)
        for position, weight in enumerate(self.weights):
            gradient = torch.randn(weight.shape, generator=rng).to(weight.dtype)
            weight.grad = None if position in absent else gradient
        self.taken += 1

    def scale(self):
        self.optimizer.scale_loss(torch.ones((), requires_grad=True))

    def step(self, *absent):
        self.fill(absent)
        self.scale()
        self.optimizer.step()

    def everything(self):
        """Return copies of weights, masters and state."""
        masters = [self.optimizer.master(weight) for weight in self.weights]
        found = {f"weight {k}": weight for k, weight in enumerate(self.weights)}
        for k, master in enumerate(masters):
            found[f"master {k}"] = master
            for key, value in self.optimizer.state.get(master, {}).items():
                found[f"{key} {k}"] = torch.as_tensor(value)
        return {key: value.detach().clone() for key, value in found.items()}


@pytest.fixture
def steps(monkeypatch):
    """Return the list to which the number of masters of each flat step is added."""
    counts, finish = [], Run.finish

    def count(run):
        counts.append(len(run.masters))
        finish(run)

    monkeypatch.setattr(Run, "finish", count)
    return counts


def both(monkeypatch, act, *arguments, **options):
    """Train on flat memory and a tensor at a time; return what became of both."""
    flat = Training(*arguments, **options)
    act(flat)
    with monkeypatch.context() as patch:
        patch.setattr(flat_step, "ELEMENTWISE", set())
        single = Training(*arguments, **options)
        act(single)
    return flat.everything(), single.everything()


def assert_same_bits(got, expected):
    assert got.keys() == expected.keys()
    for key, value in got.items():
        assert value.isfinite().all(), key
        assert value.dtype == expected[key].dtype, key
        assert torch.equal(value, expected[key]), key


def five_steps(training):
    for _ in range(5):
        training.step()


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_flat_steps_have_the_bits_of_single_ones(
    kind, options, groups, steps, monkeypatch
) -> None:
    trainings = both(monkeypatch, five_steps, kind, groups=groups, **options)
    assert_same_bits(*trainings)
    assert groups > 1 or steps


def test_a_master_without_a_gradient_leaves_and_returns(steps, monkeypatch) -> None:
    def act(training):
        for absent in [(), (), (1, 5), (), (0,), ()]:
            training.step(*absent)

    assert_same_bits(*both(monkeypatch, act, SGD, momentum=0.9))
    assert steps == [len(SHAPES)] * 3


def test_masters_that_took_other_numbers_of_steps_go_alone(steps, monkeypatch) -> None:
    def act(training):
        for absent in [(), (), (1, 5), (), ()]:
            training.step(*absent)

    flat, single = both(monkeypatch, act)
    assert_same_bits(flat, single)
    assert [int(flat[f"step {k}"]) for k in (0, 1, 2)] == [5, 4, 5]
    assert steps == [len(SHAPES)]


def test_a_skipped_step_changes_nothing(monkeypatch) -> None:
    def act(training):
        for overflows in (False, False, True, False):
            training.fill()
            if overflows:
                training.weights[0].grad[0] = torch.inf
            training.scale()
            training.optimizer.step()

    assert_same_bits(*both(monkeypatch, act, scale="dynamic"))


def test_a_sparse_gradient_is_trained_by_itself(steps, monkeypatch) -> None:
    def act(training):
        for is_sparse in (False, False, True, False):
            training.fill()
            if is_sparse:
                weight = training.weights[6]
                weight.grad = weight.grad.to_sparse(1)
            training.scale()
            training.optimizer.step()

    assert_same_bits(*both(monkeypatch, act, SGD, momentum=0.9))
    assert steps == [len(SHAPES)] * 2


def by_hand(training):
    """Take steps on gradients that were unscaled and clipped by hand."""
    for _ in range(3):
        training.fill()
        training.scale()
        training.optimizer.unscale_()
        masters = list(training.optimizer.master_params())
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        training.optimizer.step()


def given(training):
    """Take steps in the manner of TensorFlow."""
    for _ in range(3):
        training.fill()
        pairs = [(w.grad.float() * 1.0, w) for w in training.weights]
        training.optimizer.apply_gradients(pairs)


def loaded(training):
    training.step()
    training.step()
    saved = copy.deepcopy(training.optimizer.state_dict())
    training.step()
    training.optimizer.load_state_dict(saved)
    five_steps(training)


def replaced(training):
    """Replace and edit state between steps."""
    five_steps(training)
    state = training.optimizer.state
    first, second, third = map(training.optimizer.master, training.weights[:3])
    state[first]["exp_avg"] = torch.ones_like(first)
    state[second]["exp_avg_sq"].fill_(2.0)
    training.step()
    state[third]["step"].fill_(1.0)
    training.step()
    state[first] = copy.deepcopy(state[first])
    training.step()
    state.clear()
    training.step()
    training.step()


def with_another_group(training):
    five_steps(training)
    added = torch.nn.Parameter(torch.ones(16).half()), torch.nn.Parameter(torch.ones(8))
    training.optimizer.add_param_group({"params": list(added), "lr": 0.1})
    training.weights += added
    five_steps(training)


def with_other_options(training):
    for name, value in [
        ("weight_decay", 0.5),
        ("eps", 0.0),
        ("eps", 1e-3),
        ("fused", True),
        ("fused", None),
        ("lr", torch.tensor(0.25)),
    ]:
        training.step()
        training.optimizer.param_groups[0][name] = value
        training.step()


ACTS = [
    by_hand,
    given,
    loaded,
    replaced,
    with_another_group,
    with_other_options,
]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_whatever_happens_between_steps_ends_in_the_same_bits(act, monkeypatch) -> None:
    assert_same_bits(*both(monkeypatch, act, AdamW, amsgrad=True))


def test_groups_are_put_back_where_the_step_fails(monkeypatch) -> None:
    training = Training()
    five_steps(training)
    inner = training.optimizer.inner_optimizer
    before = list(inner.param_groups[0]["params"])
    inner.param_groups[0]["betas"] = None  # unpacked by the step
    with pytest.raises(TypeError):
        training.step()
    now = inner.param_groups[0]["params"]
    assert all(a is b for a, b in zip(now, before, strict=True))
    assert len(inner.state) == len(before)


def seen_by_a_hook(optimizer):
    seen = []
    handle = optimizer.register_step_pre_hook(
        lambda self, *_: seen.append(len(self.param_groups[0]["params"]))
    )
    return seen, handle


def test_hooks_of_the_wrapped_optimizer_see_masters(steps) -> None:
    training = Training()
    five_steps(training)
    steps.clear()
    seen, handle = seen_by_a_hook(training.optimizer.inner_optimizer)
    training.step()
    assert seen == [len(training.weights)] and not steps
    handle.remove()
    training.step()
    assert steps


def test_a_step_is_counted_as_a_change_of_each_master(steps) -> None:
    training = Training()
    five_steps(training)
    master = training.optimizer.master(training.weights[0])
    squares = master.square().sum()
    training.step()
    assert steps
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.backward()
