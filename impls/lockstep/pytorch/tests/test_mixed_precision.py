"""Masters on PyTorch: training, other wrappers, scales, memory layouts."""

from __future__ import annotations

import operator
import warnings

import pytest
import torch
from torch import nn
from torch.nn import Parameter
from torch.optim import Adagrad, AdamW

from lockstep.errors import UnsupportedError
from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionOptimizerWrapper,
)
from lockstep.pytorch.tests.half_models import (
    SCALES,
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
from lockstep.pytorch.tests.subjects import ALL, TORCH, TwoHeads, batches


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


def test_the_groups_are_the_wrapped_optimizers_over_the_models_parameters():
    model = mixed()
    groups = [
        {"params": list(model.body.parameters()), "lr": 0.5},
        {"params": [*model.a.parameters(), *model.b.parameters()]},
    ]
    sgd = torch.optim.SGD(groups, lr=0.25)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 4)
    assert optimizer.param_groups is sgd.param_groups
    listed = [p for group in sgd.param_groups for p in group["params"]]
    assert all(map(operator.is_, listed, model.parameters()))
    assert all(p.dtype == torch.float32 for p in optimizer.master_params())
    before = everything(model, optimizer)
    train(model, optimizer, "+")
    after = everything(model, optimizer)
    for name, rate in ("body.weight", 0.5), ("a.weight", 0.25):
        moved = before[f"{name} master"] - after[f"{name} master"]
        gradient = model.get_parameter(name).grad.float() / 4
        torch.testing.assert_close(moved, rate * gradient)


def test_a_group_that_is_added_has_masters():
    model = mixed()
    optimizer = MixedPrecisionOptimizerWrapper(TORCH["SGD"](model.body.parameters()), 2)
    optimizer.add_param_group({"params": list(model.a.parameters()), "lr": 0.5})
    train(model, optimizer, "++")
    assert optimizer.master(model.a.weight).dtype == torch.float32
    assert not torch.equal(model.a.weight, TwoHeads().half().a.weight)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [model.a.weight]})
    assert len(optimizer.param_groups) == 2


def test_an_optimizer_may_be_wrapped_again():
    model = mixed()
    sgd = TORCH["SGD"](model.parameters())
    for scale in (2, 4):
        optimizer = MixedPrecisionOptimizerWrapper(sgd, scale)
        before = model.a.weight.detach().clone()
        train(model, optimizer, "+")
        assert not torch.equal(model.a.weight, before)


def test_an_optimizer_that_is_wrapped_again_keeps_masters_and_slots():
    def trained(wraps):
        model = mixed()
        sgd = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.5)
        optimizer = MixedPrecisionOptimizerWrapper(sgd, 2)
        for _ in range(3):
            train(model, optimizer, "+")
            optimizer = MixedPrecisionOptimizerWrapper(sgd, 2) if wraps else optimizer
        return everything(model, optimizer)

    once, often = trained(False), trained(True)
    assert once.keys() == often.keys()
    assert all(torch.equal(once[name], often[name]) for name in once)


def test_an_optimizer_that_could_not_be_wrapped_steps_alone():
    values = torch.ones(4).half()
    tied = [torch.nn.Parameter(values[:2]) for _ in range(2)]
    sgd = torch.optim.SGD(tied, lr=0.5)
    with pytest.raises(UnsupportedError, match="memory of their own"):
        MixedPrecisionOptimizerWrapper(sgd, 2)
    tied[0].grad = torch.ones(2).half()
    sgd.step()
    assert tied[0].tolist() == [0.5, 0.5]


def test_weights_on_the_meta_device_share_no_memory():
    weights = [torch.nn.Parameter(torch.ones(2, device="meta").half()) for _ in "ab"]
    optimizer = MixedPrecisionOptimizerWrapper(torch.optim.SGD(weights), 2)
    assert optimizer.master(weights[1]).dtype == torch.float32


def test_a_group_that_is_added_on_the_masters_is_trained_afterwards():
    model = mixed()
    optimizer = MixedPrecisionOptimizerWrapper(TORCH["SGD"](model.body.parameters()), 2)
    with optimizer.on_masters():
        optimizer.add_param_group({"params": list(model.a.parameters()), "lr": 0.5})
    listed = [p for group in optimizer.param_groups for p in group["params"]]
    of_model = [*model.body.parameters(), *model.a.parameters()]
    assert all(map(operator.is_, listed, of_model))
    train(model, optimizer, "+")
    assert optimizer.master(model.a.weight).dtype == torch.float32
    assert not torch.equal(model.a.weight, TwoHeads().half().a.weight)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_clears_the_models_gradients_and_the_masters(set_to_none):
    model = mixed()
    optimizer = wrapped(model)
    loss_of(model, torch.ones(2, 3)).backward()
    optimizer.unscale_()
    optimizer.zero_grad(set_to_none)
    grads = [p.grad for p in model.parameters()]
    assert all(g is None if set_to_none else not g.any() for g in grads)
    assert optimizer.master(model.a.weight).grad is None


def test_an_adafactor_that_has_trained_half_precision_goes_on_in_float32():
    """Its state has the dtype of the weights, but the means of rows and columns."""
    weight = torch.nn.Parameter(torch.ones(3, 2, dtype=torch.bfloat16))
    adafactor = torch.optim.Adafactor([weight], lr=0.1)
    weight.grad = torch.ones_like(weight)
    adafactor.step()
    half = weight.detach().clone()
    optimizer = MixedPrecisionOptimizerWrapper(adafactor)
    slots = adafactor.state[optimizer.master(weight)]
    assert slots["row_var"].dtype == slots["col_var"].dtype == torch.float32
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert (weight < half).all()


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("scale", SCALES)
@some
def test_a_step_that_is_not_finite_changes_nothing_and_says_whose_fault(
    name, scale, bad
):
    model = mixed()
    optimizer = wrapped(model, name, SCALES[scale]())
    train(model, optimizer, "++")
    before = everything(model, optimizer)
    optimizer.zero_grad()
    optimizer.scale_loss(loss_of(model, torch.ones(2, 3))).backward()
    with torch.no_grad():
        model.a.weight.grad[0, 0] = bad
        model.b.bias.grad[0] = bad
    optimizer.step()
    assert_same(everything(model, optimizer), before)
    assert not optimizer.last_step.applied
    assert optimizer.last_step.nonfinite == ("a.weight", "b.bias")
    assert "skipped, not finite: a.weight, b.bias" in optimizer.last_step.reason


def test_large_finite_gradients_are_finite_though_their_squares_overflow():
    weight = Parameter(torch.zeros(2, dtype=torch.bfloat16))
    optimizer = wrapped_weight(weight, clip_norm=1.0)
    step_on(weight, optimizer, torch.tensor([3e30, 4e30]))
    assert optimizer.last_step.applied
    assert optimizer.master(weight).tolist() == pytest.approx([-0.6, -0.8], rel=1e-2)


@pytest.mark.parametrize("name", ["SGD", "Adam fused", "Adam", "TF1 Adam"])
def test_the_clip_is_folded_into_the_unscaling(name):
    model, twin = mixed(), mixed()
    optimizer = wrapped(model, name, 64.0, clip_norm=0.5)
    plain = ALL[name](
        [
            (n, Parameter(p.detach().float(), p.requires_grad))
            for n, p in twin.named_parameters()
        ]
    )
    for inputs in batches(3):
        optimizer.zero_grad()
        optimizer.scale_loss(loss_of(model, inputs)).backward()
        optimizer_grads = [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        params = plain.param_groups[0]["params"]
        for parameter, gradient in zip(params, optimizer_grads, strict=True):
            parameter.grad = gradient.float() / 64
        norm = torch.nn.utils.clip_grad_norm_(params, 0.5)
        plain.step()
        assert optimizer.last_step.norm == pytest.approx(norm.item(), rel=1e-5)
        for one, other in zip(optimizer.master_params(), params, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam fused"])
def test_gradients_that_were_given_keep_their_values(name):
    model = mixed()
    optimizer = wrapped(model, name, clip_norm=0.5)
    given = [(torch.ones_like(optimizer.master(p)), p) for p in model.parameters()]
    given = [(g, optimizer.master(p)) for g, p in given]
    optimizer.apply_gradients(given)
    assert optimizer.last_step.clip_factor < 1
    assert all((gradient == 1).all() for gradient, _ in given)


def test_gradients_that_overflow_when_they_are_unscaled_are_not_applied():
    weight = Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = wrapped_weight(weight, loss_scale=2.0**-10)
    optimizer.scale_loss(weight.sum() * 1e38).backward()
    weight.grad.fill_(1e38)
    optimizer.step()
    assert optimizer.last_step.nonfinite == ("weight",)
    assert weight.item() == 1.0


@pytest.mark.parametrize(
    "scale",
    [
        lambda: 8.0,
        lambda: DynamicLossScale(2.0),
        lambda: AutomaticLossScaler("Backoff", {"scale_max": 2.0}),
    ],
    ids=["number", "dynamic", "backoff"],
)
def test_a_run_that_skips_every_step_at_the_floor_is_told(scale):
    for at_floor in ("warn", "raise", "ignore"):
        model = mixed()
        options = {"at_floor": at_floor, "floor_patience": 3}
        optimizer = wrapped(model, "SGD", scale(), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            train(model, optimizer, "!!")
        if at_floor == "ignore":
            train(model, optimizer, "!")
        elif at_floor == "raise":
            with pytest.raises(RuntimeError, match=r"Wrapper: .* 3 skipped in a"):
                train(model, optimizer, "!")
        else:
            with pytest.warns(UserWarning, match=r"3 skipped in a row .* a\.bias"):
                train(model, optimizer, "!")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("then", ["absent", "sparse", "given"])
def test_the_norm_is_of_the_gradients_of_this_step_alone(then, fused):
    half, other = Parameter(torch.zeros(2, 1).half()), Parameter(torch.zeros(1).half())
    sgd = torch.optim.SGD([half, other], lr=1.0, momentum=0.5, fused=fused)
    if then == "sparse" and fused:
        pytest.skip("fused SGD takes no sparse gradients")
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 8, clip_norm=1e4)
    half.grad, other.grad = torch.full_like(half, 300.0), torch.ones_like(other)
    optimizer.step()
    # Not the optimizer's zero_grad: masters must have given their gradients back.
    half.grad = other.grad = None
    assert all(p.grad is None for p in optimizer.master_params())
    gradient = torch.full_like(other, 4.0)
    if then == "given":
        optimizer.apply_gradients([(gradient, other)])
    else:
        other.grad = gradient
        if then == "sparse":
            half.grad = torch.tensor([[3.0], [0.0]]).half().to_sparse(1)
        optimizer.step()
    assert optimizer.last_step.norm == (5.0 if then == "sparse" else 4.0)


FUSED = {
    "Adagrad": lambda weights: Adagrad(weights, lr=0.1, fused=True),
    "AdamW": lambda weights: AdamW(weights, lr=0.1, fused=True),
}
everyone_layouts = pytest.mark.parametrize("name", FUSED)


def model_in(layout: torch.memory_format) -> nn.Module:
    torch.manual_seed(0)
    # 128 elements fill vector registers; others would have other bits.
    return nn.Conv2d(4, 4, (2, 4)).bfloat16().to(memory_format=layout)


def loss_of_layouts(model: nn.Module) -> torch.Tensor:
    """Return a loss whose gradients have the same bits in any layout."""
    weight = model.weight.float()
    factors = torch.linspace(-1, 1, weight.numel()).view(weight.shape)
    return (weight * factors).square().sum() + model.bias.float().sum()


def assert_same_layouts(train) -> None:
    """Training must not depend on the layout of the weights in memory."""
    contiguous = model_in(torch.contiguous_format)
    other = model_in(torch.channels_last)
    assert not other.weight.is_contiguous()
    for model in (contiguous, other):
        train(model)
    assert torch.equal(contiguous.weight, other.weight)


@everyone_layouts
@pytest.mark.parametrize("pairs_of", [torch.bfloat16, torch.float32, None])
def test_gradients_of_masters_lie_in_memory_as_the_masters_do(name, pairs_of) -> None:
    def train(model: nn.Module) -> None:
        fused = FUSED[name](model.parameters())
        optimizer = MixedPrecisionOptimizerWrapper(fused, 8.0)
        for _ in range(3):
            if pairs_of is not None:
                model.zero_grad()
                loss_of_layouts(model).backward()
                pairs = [(p.grad.to(pairs_of), p) for p in model.parameters()]
                optimizer.apply_gradients(pairs)
            else:
                optimizer.minimize(lambda: loss_of_layouts(model))

    assert_same_layouts(train)


@everyone_layouts
def test_the_state_of_an_optimizer_that_is_wrapped_later_does_too(name) -> None:
    def train(model: nn.Module) -> None:
        fused = FUSED[name](model.parameters())
        for _ in range(2):
            fused.zero_grad()
            loss_of_layouts(model).backward()
            fused.step()
        optimizer = MixedPrecisionOptimizerWrapper(fused, 8.0)
        for _ in range(3):
            optimizer.zero_grad()
            optimizer.scale_loss(loss_of_layouts(model)).backward()
            optimizer.step()

    assert_same_layouts(train)


def overlapping() -> tuple[nn.Parameter, nn.Parameter, nn.Parameter]:
    """Return two parameters in one place, and one beside them."""
    memory = torch.zeros(8, dtype=torch.float16)
    parts = memory[:4], memory[:4].view(2, 2), memory[4:]
    return tuple(map(nn.Parameter, parts))


def test_two_weights_in_one_place_are_refused_because_their_masters_would_differ():
    one, other, beside = overlapping()
    with pytest.raises(UnsupportedError, match="memory of their own"):
        MixedPrecisionOptimizerWrapper(torch.optim.SGD([one, beside, other], lr=1.0))
    sgd = torch.optim.SGD([one, beside], lr=1.0)
    optimizer = MixedPrecisionOptimizerWrapper(sgd)
    with pytest.raises(UnsupportedError, match="memory of their own"):
        optimizer.add_param_group({"params": [other]})
    assert [len(group["params"]) for group in sgd.param_groups] == [2]


def test_empty_weights_and_weights_in_float32_may_share_memory():
    empty = [nn.Parameter(torch.zeros(0, dtype=torch.float16)) for _ in range(2)]
    memory = torch.zeros(4)
    wide = [nn.Parameter(memory), nn.Parameter(memory.view(2, 2))]
    optimizer = MixedPrecisionOptimizerWrapper(torch.optim.SGD(empty + wide, lr=1.0))
    for parameter in wide:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert memory.tolist() == [-2.0] * 4
