"""compute_gradients, apply_gradients, minimize and the slots, on every class."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import AdamOptimizer, MomentumOptimizer, MultitaskOptimizerWrapper
from lockstep.pytorch.base.wrapper import OptimizerWrapper
from lockstep.pytorch.tests.subjects import (
    TF1,
    TORCH,
    TwoHeads,
    assert_same_bits,
    snapshot,
    train,
)

SUBJECTS = {
    "TF1 Adam": TF1["TF1 Adam"],
    "wrapped Momentum": lambda p: MultitaskOptimizerWrapper(TF1["Momentum"](p)),
    "wrapped torch Adam": lambda p: MultitaskOptimizerWrapper(TORCH["Adam"](p)),
    "wrapped twice": lambda p: MultitaskOptimizerWrapper(
        MultitaskOptimizerWrapper(TORCH["SGD momentum"](p))
    ),
}
subjects = pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS)
INPUTS = torch.ones(2, 3)


@subjects
def test_minimize_is_backward_and_step(make):
    one, two = TwoHeads(), TwoHeads()
    optimizer, other = make(one.parameters()), make(two.parameters())
    for _ in range(3):
        optimizer.minimize(lambda: one(INPUTS, 1.0, 2.0))
        other.zero_grad()
        two(INPUTS, 1.0, 2.0).backward()
        other.step()
    assert_same_bits(snapshot(one, optimizer), snapshot(two, other))


@subjects
def test_minimize_takes_the_loss_itself_too(make):
    one, two = TwoHeads(), TwoHeads()
    make(one.parameters()).minimize(lambda: one(INPUTS, 1.0, 2.0))
    make(two.parameters()).minimize(two(INPUTS, 1.0, 2.0))
    assert torch.equal(one.a.weight, two.a.weight)


@subjects
def test_compute_gradients_pairs_every_parameter_and_touches_no_grad(make):
    model = TwoHeads()
    model.a.bias.requires_grad_(False)
    optimizer = make(model.parameters())
    model.body.weight.grad = torch.full((4, 3), 7.0)
    pairs = optimizer.compute_gradients(lambda: model(INPUTS, 1.0, 0.0))
    assert [variable for _, variable in pairs] == list(model.parameters())
    absent = [gradient is None for gradient, _ in pairs]
    assert absent == [False, False, False, True, False, False]
    assert model.body.weight.grad.eq(7.0).all()
    assert model.body.bias.grad is None


def test_compute_gradients_takes_a_variable_list_and_an_upstream_gradient():
    weight, other = Parameter(torch.tensor([1.0, 2.0])), Parameter(torch.ones(1))
    optimizer = MomentumOptimizer([weight, other], 0.1, 0.9)
    [(gradient, variable)] = optimizer.compute_gradients(
        lambda: weight * weight, [weight], grad_loss=torch.tensor([1.0, 10.0])
    )
    assert variable is weight
    assert gradient.tolist() == [2.0, 40.0]
    [(gradient, _)] = optimizer.compute_gradients(weight.sum(), [weight], grad_loss=3)
    assert gradient.tolist() == [3.0, 3.0]
    assert optimizer.compute_gradients(torch.ones(()), [other]) == [(None, other)]


def test_compute_gradients_works_under_no_grad():
    weight = Parameter(torch.ones(1))
    with torch.no_grad():
        optimizer = MomentumOptimizer([weight], 0.1, 0.9)
        [(gradient, _)] = optimizer.compute_gradients(lambda: (3 * weight).sum())
    assert gradient.item() == 3.0


@subjects
def test_apply_gradients_moves_the_named_parameters_only_and_restores_grad(make):
    model = TwoHeads()
    optimizer = make(model.parameters())
    grads = [torch.full_like(p, 5.0) for p in model.parameters()]
    for parameter, gradient in zip(model.parameters(), grads, strict=True):
        parameter.grad = gradient
    before = model.b.weight.detach().clone()
    optimizer.apply_gradients(iter([(torch.ones(2, 4), model.a.weight)]))
    after = [parameter.grad for parameter in model.parameters()]
    assert all(a is b for a, b in zip(after, grads, strict=True))
    assert torch.equal(model.b.weight, before)
    assert not torch.equal(model.a.weight, TwoHeads().a.weight)


@pytest.mark.parametrize("make", [SUBJECTS["TF1 Adam"], SUBJECTS["wrapped twice"]])
def test_apply_gradients_takes_sparse_gradients_and_none(make):
    table, other = Parameter(torch.ones(4, 2)), Parameter(torch.ones(2))
    optimizer = make([table, other])
    rows = torch.sparse_coo_tensor(
        [[1, 1]], torch.ones(2, 2), (4, 2), check_invariants=True
    )
    optimizer.apply_gradients([(rows, table), (None, other)])
    assert (table != 1.0).any(1).tolist() == [False, True, False, False]


@subjects
def test_the_global_step_counts(make):
    model, counter = TwoHeads(), torch.zeros((), dtype=torch.int64)
    optimizer = make(model.parameters())
    optimizer.minimize(lambda: model(INPUTS, 1.0, 1.0), counter)
    optimizer.minimize(lambda: model(INPUTS, 1.0, 1.0), global_step=counter)
    assert counter == 2


SLOTS = {
    "SGD momentum": ["momentum"],
    "Adam": ["m", "v"],
    "Adam amsgrad": ["m", "v", "max_exp_avg_sq"],
    "NAdam": ["m", "v"],
    "Adagrad": ["accumulator"],
    "RMSprop": ["rms", "momentum", "mg"],
}


@pytest.mark.parametrize(("name", "slots"), SLOTS.items(), ids=SLOTS)
def test_slots_of_torch_optimizers_have_tf_names(name, slots):
    model = TwoHeads()
    inner = TORCH[name](model.parameters())
    wrapper = MultitaskOptimizerWrapper(MultitaskOptimizerWrapper(inner))
    train(model, wrapper, "+")
    assert sorted(wrapper.get_slot_names()) == sorted(slots)
    for slot in slots:
        found = wrapper.get_slot(model.a.weight, slot)
        assert found.shape == model.a.weight.shape
        assert any(found is value for value in inner.state[model.a.weight].values())
    assert wrapper.get_slot(model.a.weight, "no such slot") is None
    assert wrapper.get_slot(Parameter(torch.ones(1)), slots[0]) is None


@subjects
def test_variables_are_all_tensors_of_state(make):
    model = TwoHeads()
    optimizer = make(model.parameters())
    train(model, optimizer, "+")
    expected = sum(len(slots) for slots in optimizer.state.values())
    powers = 2 if isinstance(optimizer, AdamOptimizer) else 0
    found = optimizer.variables()
    assert len(found) == expected + powers
    assert all(isinstance(value, torch.Tensor) for value in found)


def test_names():
    parameter = Parameter(torch.ones(1))
    adam = AdamOptimizer([parameter], name="mine")
    assert MultitaskOptimizerWrapper(adam).get_name() == "mine"
    assert AdamOptimizer([parameter]).get_name() == "Adam"
    sgd = torch.optim.SGD([parameter], lr=0.1)
    assert MultitaskOptimizerWrapper(sgd).get_name() == "SGD"
    gates = [getattr(adam, f"GATE_{gate}") for gate in ("NONE", "OP", "GRAPH")]
    assert gates == [0, 1, 2]


STRANGER = Parameter(torch.ones(2))
ONES = torch.ones(2)
BAD_PAIRS = {
    "no iterable": (lambda w, v: 3, TypeError, "an iterable of"),
    "no pairs": (lambda w, v: [ONES], TypeError, "got Tensor at position 0"),
    "turned around": (lambda w, v: [(w, "w")], TypeError, "gradient first"),
    "an array": (lambda w, v: [(ONES.numpy(), w)], TypeError, "got ndarray for 'w'"),
    "empty": (lambda w, v: [], ValueError, "got an empty list"),
    "all absent": (lambda w, v: [(None, w)], ValueError, "None for every one of w"),
    "a stranger": (lambda w, v: [(ONES, STRANGER)], ValueError, "add_param_group"),
    "named twice": (lambda w, v: [(ONES, w), (ONES, w)], ValueError, "'w' twice"),
    "shape": (
        lambda w, v: [(ONES, w), (ONES, v)],
        ValueError,
        r"expected a gradient of shape \[3\] for 'v', got \[2\]",
    ),
    "dtype": (
        lambda w, v: [(ONES, w), (torch.ones(3).double(), v)],
        TypeError,
        "expected a gradient of dtype float32 for 'v', got float64; cast",
    ),
    "device": (
        lambda w, v: [(ONES, w), (torch.ones(3, device="meta"), v)],
        ValueError,
        "expected a gradient on cpu for 'v', got meta",
    ),
}
BAD_COUNTERS = {
    "a number": 0,
    "a float": torch.zeros(()),
    "a vector": torch.zeros(1, dtype=torch.int64),
    "a bool": torch.tensor(False),
}


@subjects
@pytest.mark.parametrize(("pairs", "error", "words"), BAD_PAIRS.values(), ids=BAD_PAIRS)
def test_bad_pairs_change_nothing(make, pairs, error, words):
    w, v = Parameter(torch.ones(2)), Parameter(torch.ones(3))
    optimizer = make([("w", w), ("v", v)])
    counter = torch.zeros((), dtype=torch.int64)
    with pytest.raises(error, match=words):
        optimizer.apply_gradients(pairs(w, v), counter)
    assert w.eq(1).all()
    assert v.eq(1).all()
    assert (counter, w.grad, v.grad) == (0, None, None)


@subjects
@pytest.mark.parametrize("counter", BAD_COUNTERS.values(), ids=BAD_COUNTERS)
def test_a_bad_global_step_is_refused_before_any_change(make, counter):
    weight = Parameter(torch.ones(2))
    optimizer = make([weight])
    for attempt in (
        lambda: optimizer.apply_gradients([(ONES, weight)], counter),
        lambda: optimizer.minimize(lambda: weight.sum(), counter),
    ):
        with pytest.raises(TypeError, match="global_step to be None or a 0-d integer"):
            attempt()
    assert weight.eq(1).all()


BAD_LOSSES = {
    "a number": ({"loss": 3.0}, TypeError, "got float"),
    "a function of numbers": ({"loss": lambda: 3.0}, TypeError, "got float"),
    "a vector": ({"loss": lambda: STRANGER * 2}, ValueError, r"got \[2\]; sum it"),
    "names": ({"var_list": ["w"]}, ValueError, "a list of variables, got 'w'"),
    "gate": ({"gate_gradients": 3}, ValueError, "GATE_NONE, GATE_OP or GATE_GRAPH"),
    "method": ({"aggregation_method": 9}, ValueError, "None, 0, 1 or 2, got 9"),
}


@subjects
@pytest.mark.parametrize(
    ("arguments", "error", "words"), BAD_LOSSES.values(), ids=BAD_LOSSES
)
def test_a_bad_argument_of_compute_gradients_is_named(make, arguments, error, words):
    weight = Parameter(torch.ones(2))
    arguments = {"loss": lambda: weight.sum(), **arguments}
    with pytest.raises(error, match=words):
        make([weight]).compute_gradients(**arguments)


@pytest.mark.parametrize("wrap", [MultitaskOptimizerWrapper, OptimizerWrapper])
def test_given_gradients_are_not_changed_by_nesterovs_momentum(wrap):
    """torch's SGD adds the momentum to them if it updates all tensors at once."""
    weight, given = Parameter(torch.ones(2)), torch.tensor([1.0, 2.0])
    sgd = torch.optim.SGD([weight], 0.5, 0.5, nesterov=True, foreach=True)
    wrap(sgd).apply_gradients([(given, weight)])
    assert weight.tolist() == [0.25, -0.5]
    assert given.tolist() == [1.0, 2.0]
