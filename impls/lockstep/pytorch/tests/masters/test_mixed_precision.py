"""Masters on PyTorch: how they are trained."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import (
    MixedPrecisionOptimizerWrapper,
)
from lockstep.pytorch.tests.masters.models import (
    assert_same,
    everyone,
    everything,
    halves,
    loss_of,
    mixed,
    some,
    step_on,
    train,
    wrapped,
    wrapped_weight,
)
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, batches


@halves
@everyone
def test_masters_are_trained_as_float32_parameters_would_be(name, dtype):
    model = mixed(dtype)
    optimizer = wrapped(model, name, None)
    twin = {n: Parameter(p.detach().float()) for n, p in model.named_parameters()}
    plain = ALL[name](twin.items())
    for inputs in batches(4):
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        for key, parameter in model.named_parameters():
            twin[key].grad = parameter.grad.float()
        optimizer.step()
        plain.step()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(
            optimizer.master(parameter), twin[key], rtol=0, atol=0
        )
        assert torch.equal(parameter, twin[key].to(parameter.dtype))


@halves
def test_a_weight_is_clamped_and_its_master_goes_on(dtype):
    weight = Parameter(torch.zeros(3, dtype=dtype))
    optimizer = wrapped_weight(weight)
    largest = torch.finfo(dtype).max
    with torch.no_grad():
        optimizer.master(weight).copy_(torch.tensor([3.4e38, -3.4e38, 1.0]))
    step_on(weight, optimizer, torch.zeros(3))
    assert weight.tolist() == [largest, -largest, 1.0]
    assert optimizer.master(weight)[0] > largest


def test_parameters_without_gradients_are_left_alone():
    model = mixed()
    optimizer = wrapped(model, "Adam")
    train(model, optimizer, "++")
    before = everything(model, optimizer)
    train(model, optimizer, "b")
    after = everything(model, optimizer)
    changed = {k for k in after if not torch.equal(after[k], before[k])}
    assert changed
    assert all(name.startswith(("b.", "body.")) for name in changed)


def test_sparse_gradients_stay_sparse():
    table = torch.nn.Embedding(5, 2, sparse=True).half()
    sgd = torch.optim.SGD(table.named_parameters(), lr=1.0)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 4)
    start = table.weight.detach().clone()
    optimizer.scale_loss(table(torch.tensor([1, 1, 3])).sum()).backward()
    optimizer.step()
    expected = start - torch.tensor([[0], [2], [0], [1], [0]]).half()
    assert torch.equal(table.weight, expected)


@some
def test_minimize_and_step_give_the_same_bits(name):
    one, other = mixed(), mixed()
    first, second = wrapped(one, name), wrapped(other, name)
    counter = torch.zeros((), dtype=torch.int64)
    for inputs in batches(3):
        first.zero_grad()
        first.scale_loss(loss_of(one, inputs)).backward()
        first.step()
        second.minimize(lambda x=inputs: loss_of(other, x), counter)
    assert_same(everything(one, first), everything(other, second))
    assert counter.item() == 3


def test_compute_gradients_pairs_unscaled_float32_gradients_with_masters():
    weight = Parameter(torch.ones(2).half())
    optimizer = wrapped_weight(weight, loss_scale=8)
    ((gradient, master),) = optimizer.compute_gradients(lambda: (3 * weight).sum())
    assert gradient.tolist() == [3.0, 3.0]
    assert gradient.dtype == torch.float32
    assert master is optimizer.master(weight)
    weight.grad = torch.full_like(weight, 7.0)
    optimizer.apply_gradients([(gradient, master)])
    assert weight.tolist() == [-2.0, -2.0]
    assert weight.grad.tolist() == [7.0, 7.0]
    assert master.grad is None
    optimizer.apply_gradients([(torch.ones(2).half(), weight)])
    assert weight.tolist() == [-3.0, -3.0]


@pytest.mark.parametrize(
    "gradient",
    [
        torch.ones(2, dtype=torch.int64),
        torch.ones(2, dtype=torch.float64),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, dtype=torch.bfloat16),
        1.0,
    ],
    ids=str,
)
def test_a_gradient_of_another_dtype_is_refused(gradient):
    weight = Parameter(torch.ones(2).half())
    optimizer = wrapped_weight(weight, loss_scale=8)
    with pytest.raises(TypeError, match=r"expected .*, got .*; .*\.$"):
        optimizer.apply_gradients([(gradient, weight)])
    assert weight.tolist() == [1.0, 1.0]
    optimizer.apply_gradients([(torch.ones(2), weight)])
    assert weight.tolist() == [0.0, 0.0]


@halves
def test_a_model_that_is_halved_after_wrapping_gets_masters(dtype) -> None:
    model = TwoHeads()
    optimizer = wrapped(model)
    train(model, optimizer, "+")
    model.to(dtype)
    train(model, optimizer, "+")
    for weight in model.parameters():
        assert optimizer.master(weight).dtype == torch.float32
        assert torch.equal(optimizer.master(weight).to(dtype), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_model_that_is_widened_after_wrapping_is_refused(dtype) -> None:
    model = TwoHeads().half()
    optimizer = wrapped(model)
    train(model, optimizer, "+")
    saved = optimizer.state_dict()
    model.to(dtype)
    before = everything(model, optimizer)
    for act in (
        lambda: train(model, optimizer, "+"),
        lambda: optimizer.load_state_dict(saved),
    ):
        with pytest.raises(TypeError, match=f"in half precision .* got {dtype}"):
            act()
    after = everything(model, optimizer)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    model.half()
    train(model, optimizer, "+")


def test_a_model_may_go_from_one_half_precision_to_the_other() -> None:
    model = TwoHeads().half()
    optimizer = wrapped(model)
    train(model, optimizer, "+")
    model.bfloat16()
    before = model.body.weight.clone()
    train(model, optimizer, "+")
    assert not torch.equal(model.body.weight, before)


@halves
@pytest.mark.parametrize("size", [7, 64, 67])
def test_fused_sgd_trains_every_element_of_half_precision_weights(size, dtype):
    """Without masters, torch 2.13 leaves elements as they are on the CPU."""
    weight = Parameter(torch.ones(size, dtype=dtype))
    sgd = torch.optim.SGD([weight], lr=0.25, momentum=0.5, fused=True)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 8.0)
    for _ in range(2):
        optimizer.zero_grad()
        optimizer.scale_loss(weight.sum()).backward()
        optimizer.step()
    assert torch.equal(weight, torch.full_like(weight, 1 - 0.25 - 0.375))
