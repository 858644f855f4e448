"""Loss scaling on PyTorch: scaled steps, skips, scales that nobody asked for."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.nn import Parameter

from lockstep.errors import ScaleStalledError, UnsupportedError
from lockstep.pytorch import (
    AdamOptimizer,
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    optimize_loss,
)
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, assert_same_bits, snapshot


def started(name: str = "Adam", scale="dynamic", **options):
    model = TwoHeads()
    inner = ALL[name](model.named_parameters())
    return model, MixedPrecisionLossScaleOptimizer(inner, scale, **options)


def backward(model: TwoHeads, optimizer, weight: float = 1.0) -> None:
    optimizer.zero_grad()
    optimizer.scale_loss(model(torch.ones(2, 3), weight, weight)).backward()


def test_at_the_floor_it_can_raise_and_names_the_tensors() -> None:
    model, optimizer = started(scale=DynamicLossScale(2.0), at_floor="raise")
    before = snapshot(model, optimizer)
    with pytest.raises(ScaleStalledError, match=r"100 skipped.*a\.weight"):
        for _ in range(200):
            backward(model, optimizer)
            model.a.weight.grad[0, 0] = torch.nan
            optimizer.step()
    assert snapshot(model, optimizer).keys() >= before.keys()
    assert torch.equal(model.a.weight, before["a.weight"])


def test_300_zero_gradients_that_grow_the_scale_each_step_keep_it_finite() -> None:
    model, optimizer = started("SGD", DynamicLossScale(increment_period=1))
    for _ in range(300):
        optimizer.zero_grad()
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    assert torch.isfinite(optimizer.loss_scale)
    assert optimizer.loss_scale == 2.0**127


def test_gradients_are_divided_once_whatever_comes_first() -> None:
    found = []
    for way in ("plain", "step", "pairs", "again"):
        model, optimizer = started("SGD", 65536)
        parameters = list(model.parameters())
        if way in ("plain", "step"):
            loss = model(torch.ones(2, 3), 1.0, 1.0)
            (optimizer.scale_loss(loss) if way == "step" else loss).backward()
            optimizer.step()
        else:
            loss = lambda: model(torch.ones(2, 3), 1.0, 1.0)  # noqa: B023, E731
            if way == "again":
                loss = lambda: optimizer.scale_loss(model(torch.ones(2, 3), 1.0, 1.0))  # noqa: B023, E731
            optimizer.apply_gradients(optimizer.compute_gradients(loss, parameters))
        found.append(snapshot(model, optimizer))
    for other in found[1:]:
        assert_same_bits(other, found[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_losses_and_parameters_work(dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.ones(2, dtype=dtype))
    sgd = torch.optim.SGD([weight], lr=0.5)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 1024)
    optimizer.minimize(lambda: weight.sum())
    assert weight.tolist() == [0.5, 0.5]


def test_a_step_without_gradients_is_legal_and_moves_nothing() -> None:
    _, optimizer = started(scale=DynamicLossScale(8.0, 1))
    optimizer.step()
    assert optimizer.loss_scale == 8


@pytest.mark.parametrize(
    "wrapper", [MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper]
)
def test_the_numbers_of_the_scale_are_in_the_first_group_alone(wrapper) -> None:
    groups = [{"params": [nn.Parameter(torch.ones(1))]} for _ in range(2)]
    sgd = torch.optim.SGD(groups, lr=1.0)
    keys = set(sgd.param_groups[0])
    first, second = wrapper(sgd, "dynamic").param_groups
    assert {"loss_scale", "skipped_steps", "skipped_in_a_row"} < set(first) - keys
    assert set(second) == keys


@pytest.mark.parametrize("algorithm", ["Backoff", "LogMax"])
def test_an_automatic_scaler_resumes(algorithm: str) -> None:
    scaler, fresh = AutomaticLossScaler(algorithm), AutomaticLossScaler(algorithm)
    for amax in (0.5, 3.0, torch.inf):
        scaler.update_op(False, torch.tensor(amax))
    fresh.load_state_dict(scaler.state_dict())
    for each in (scaler, fresh):
        each.update_op(False, torch.tensor(2.0))
    assert fresh.state == scaler.state
    with pytest.raises(ValueError, match="state of"):
        fresh.load_state_dict({"loss_scale": 1.0})


def test_a_loss_for_validation_keeps_what_training_left_to_divide() -> None:
    model, optimizer = started("SGD", 8)
    backward(model, optimizer)
    gradient = model.a.bias.grad.clone()
    with torch.no_grad():
        optimizer.scale_loss(model(torch.ones(2, 3), 1.0, 1.0))
    optimizer.step()
    assert torch.equal(model.a.bias.grad, gradient / 8)


def test_a_loss_that_depends_on_nothing_gives_no_gradients() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = MixedPrecisionLossScaleOptimizer(torch.optim.SGD([weight]), 8)
    assert optimizer.compute_gradients(torch.ones(())) == [(None, weight)]


@pytest.mark.parametrize("capturable", [False, True])
def test_the_first_group_may_be_empty(capturable: bool) -> None:
    weight = nn.Parameter(torch.ones(2))
    groups = [{"params": []}, {"params": [weight]}]
    adam = torch.optim.Adam(groups, lr=0.5, fused=True)
    optimizer = MixedPrecisionLossScaleOptimizer(adam, 8, capturable=capturable)
    optimizer.scale_loss(weight.sum()).backward()
    optimizer.step()
    assert weight.tolist() == pytest.approx([0.5, 0.5])


def test_float64_gradients_are_divided_in_float64() -> None:
    weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 3)
    optimizer.scale_loss((weight * 7).sum()).backward()
    optimizer.step()
    # One rounding of the reciprocal and one of the product, 2**-53 each.
    assert weight.tolist() == pytest.approx([-7.0] * 3, rel=2**-52, abs=0)


SGD = torch.optim.SGD([nn.Parameter(torch.ones(1))])
BAD = [
    (lambda: MixedPrecisionLossScaleOptimizer(3, 2.0), ValueError),
    (lambda: MixedPrecisionLossScaleOptimizer(SGD, None), TypeError),
    (lambda: MixedPrecisionLossScaleOptimizer(SGD, "static"), ValueError),
    (lambda: MixedPrecisionLossScaleOptimizer(SGD, 2, at_floor="stop"), ValueError),
    (lambda: MixedPrecisionLossScaleOptimizer(SGD, 2, floor_patience=0), ValueError),
    (lambda: DynamicLossScale().update([torch.ones(2), 3.0]), TypeError),
    (lambda: FixedLossScale(0.5), ValueError),
    (lambda: FixedLossScale("8"), ValueError),
    (lambda: DynamicLossScale(0.0), ValueError),
    (lambda: DynamicLossScale(float("nan")), ValueError),
    (lambda: DynamicLossScale(increment_period=0), ValueError),
    (lambda: DynamicLossScale(multiplier=1.0), ValueError),
    (lambda: DynamicLossScale(8.0, floor=16.0), ValueError),
    (lambda: DynamicLossScale(8.0, ceiling=4.0), ValueError),
    (lambda: AutomaticLossScaler("Backof"), ValueError),
    (lambda: AutomaticLossScaler(params={"scale_max": True}), ValueError),
    (lambda: AutomaticLossScaler(params={"step_window": 8.0}), ValueError),
    (lambda: AutomaticLossScaler(params={"step_factor": 0.5}), ValueError),
    (lambda: AutomaticLossScaler(params={"step_window": 0}), ValueError),
    (
        lambda: AutomaticLossScaler(params={"scale_min": 8.0, "scale_max": 4.0}),
        ValueError,
    ),
    (lambda: AutomaticLossScaler("LogMax", {"beta1": 1.0}), ValueError),
    (lambda: AutomaticLossScaler("LogMax", {"log_max": float("nan")}), ValueError),
]


@pytest.mark.parametrize(("make", "error"), BAD)
def test_what_cannot_work_is_refused_in_a_sentence(make, error) -> None:
    with pytest.raises(error, match=r"expected .*, got .*[;,].*[.?]$"):
        make()


# Dynamo itself reads the .grad of the tensors that it passes from graph to graph.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")
@pytest.mark.parametrize("name", ["SGD", "SGD momentum", "Adam fused"])
@pytest.mark.parametrize("scale", ["dynamic", 8.0])
def test_a_compiled_training_step_gives_the_same_bits(scale, name) -> None:
    results = []
    for compiled in (False, True):
        model, optimizer = started(name, scale)

        def step(inputs, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            optimizer.scale_loss(model(inputs, 1.0, 0.5)).backward()
            optimizer.step()

        step = torch.compile(step, backend="eager") if compiled else step
        for seed in range(3):
            step(torch.full((2, 3), 0.5 + seed))
        results.append(snapshot(model, optimizer))
        torch.compiler.reset()
    assert_same_bits(*results)


WRAPPERS = {
    "scaled": MixedPrecisionLossScaleOptimizer,
    "masters": MixedPrecisionOptimizerWrapper,
}
everyone = pytest.mark.parametrize("kind", WRAPPERS)
dtypes = pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)


def started_forgotten(kind, dtype=torch.float16, scale="dynamic"):
    weight = Parameter(torch.ones(4, dtype=dtype))
    return weight, WRAPPERS[kind](torch.optim.SGD([weight], lr=0.1), scale)


def warnings_of(act):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(warning.message) for warning in caught]


@everyone
@dtypes
@pytest.mark.parametrize("scale", ["dynamic", 128.0, 0.5, "backoff"])
@pytest.mark.parametrize("factor", [1.0, 1e-9])
def test_a_scale_that_was_never_asked_for_is_told_once(kind, dtype, scale, factor):
    if kind == "scaled" and scale in (0.5, "backoff"):
        pytest.skip("not a scale of this wrapper")
    scale = AutomaticLossScaler() if scale == "backoff" else scale
    weight, optimizer = started_forgotten(kind, dtype, scale)

    def three_steps():
        for _ in range(3):
            optimizer.zero_grad()
            (factor * weight.float()).sum().backward()
            optimizer.step()

    (told,) = warnings_of(three_steps)
    assert "scale_loss(loss)" in told


def by_scale_loss(weight, optimizer):
    optimizer.scale_loss(weight.float().sum()).backward()
    optimizer.step()


def by_minimize(weight, optimizer):
    optimizer.minimize(lambda: weight.float().sum())


def by_optimize_loss(weight, optimizer):
    optimize_loss(lambda: weight.float().sum(), optimizer, None, 0.1, [weight])()


def by_a_checkpoint(weight, optimizer):
    module = torch.nn.Module()
    module.weight = weight
    saved = checkpoint.get_optimizer_state_dict(module, optimizer)
    checkpoint.set_optimizer_state_dict(module, optimizer, saved)


WAYS = [
    by_scale_loss,
    by_minimize,
    by_optimize_loss,
    by_a_checkpoint,
]


@everyone
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_who_asked_for_it_is_not_told(kind, way):
    weight, optimizer = started_forgotten(kind, torch.float32)
    assert not warnings_of(lambda: way(weight, optimizer))


@everyone
def test_a_scale_that_is_only_read_is_not_divided_by(kind):
    weight, optimizer = started_forgotten(kind, torch.float32)
    (weight.sum() * optimizer.loss_scale).backward()
    (told,) = warnings_of(optimizer.step)
    assert "taken as not multiplied by the loss scale" in told


@everyone
def test_the_scale_1_need_not_be_asked_for(kind):
    weight, optimizer = started_forgotten(kind, torch.float32, 1.0)
    weight.sum().backward()
    assert not warnings_of(optimizer.step)


@everyone
@dtypes
@pytest.mark.parametrize("steps", [0, 2])
def test_scaled_gradients_added_to_unscaled_ones_are_refused(kind, dtype, steps):
    weight, optimizer = started_forgotten(kind, dtype, 8.0)
    for _ in range(steps):
        optimizer.zero_grad()
        optimizer.scale_loss(weight.float().sum()).backward()
        optimizer.step()
    optimizer.zero_grad()
    weight.float().sum().backward()
    before = weight.grad.clone()
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="each micro-batch"):
            optimizer.scale_loss(weight.float().sum()).backward()
        assert torch.equal(weight.grad, before)
    optimizer.zero_grad()
    optimizer.scale_loss(weight.float().sum()).backward()
    optimizer.step()
    assert optimizer.last_step.applied


@everyone
@pytest.mark.parametrize("scaled", [True, False])
def test_gradients_of_the_last_step_must_be_cleared(kind, scaled):
    """Those of a plain loss may not, as with any optimizer."""
    weight, optimizer = started_forgotten(kind, scale=8.0)
    optimizer.scale_loss(weight.float().sum()).backward()
    optimizer.step()
    loss = weight.float().sum()
    if scaled:
        with pytest.raises(UnsupportedError, match="zero_grad"):
            optimizer.scale_loss(loss).backward()
    else:
        loss.backward()
        optimizer.step()
        assert optimizer.last_step.applied


def one_weight(kind):
    weight = Parameter(torch.ones(2))
    return weight, WRAPPERS[kind](torch.optim.SGD([weight], lr=1.0), 8.0)


@everyone
def test_a_scaled_loss_that_is_only_logged_divides_nothing(kind):
    weight, optimizer = one_weight(kind)
    optimizer.scale_loss(weight.sum())
    optimizer.minimize(lambda: weight.sum())
    assert weight.tolist() == [0.0, 0.0]


@everyone
def test_each_backward_pass_of_two_scaled_losses_counts(kind):
    weight, optimizer = one_weight(kind)
    losses = [optimizer.scale_loss(weight.sum()) for _ in range(2)]
    for expected, loss in zip((0.0, -1.0), losses, strict=True):
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        assert weight.tolist() == [expected, expected]


@everyone
def test_a_plain_loss_is_not_taken_for_a_scaled_one(kind):
    weight, optimizer = one_weight(kind)
    optimizer.scale_loss(weight.sum())
    (pair,) = optimizer.compute_gradients(weight.sum())
    assert pair[0].tolist() == [1.0, 1.0]
    (pair,) = optimizer.compute_gradients(optimizer.scale_loss(weight.sum()) / 2)
    assert pair[0].tolist() == [0.5, 0.5]


@everyone
def test_given_gradients_that_hold_the_scale_are_not_applied_again(kind):
    weight, optimizer = one_weight(kind)
    optimizer.scale_loss(weight.sum()).backward()
    optimizer.apply_gradients([(weight.grad, weight)])
    assert weight.tolist() == [0.0, 0.0]
    with pytest.raises(UnsupportedError, match="not applied yet"):
        optimizer.step()


@everyone
def test_losses_of_two_scales_are_not_added_up(kind):
    weight = Parameter(torch.ones(2))
    scale = DynamicLossScale(8.0, increment_period=1)
    optimizer = WRAPPERS[kind](torch.optim.SGD([weight], lr=1.0), scale)
    old, loss = (optimizer.scale_loss(weight.sum()) for _ in range(2))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.scale_loss(weight.sum()).backward()
    with pytest.raises(UnsupportedError, match="one scale until the step"):
        old.backward()
    optimizer.step()
    assert weight.tolist() == [-1.0, -1.0]


@everyone
@pytest.mark.parametrize("clear", ["data", "in place", "unscaled"])
def test_gradients_that_were_cleared_in_any_way_may_be_added_to(kind, clear):
    weight, optimizer = one_weight(kind)
    for expected in (0.0, -1.0):
        optimizer.scale_loss(weight.sum()).backward()
        if clear == "unscaled":
            optimizer.unscale_()
            weight.grad.zero_()
            optimizer.scale_loss(weight.sum()).backward()
        optimizer.step()
        assert weight.tolist() == [expected, expected]
        (weight.grad.data if clear == "data" else weight.grad).zero_()


@everyone
def test_a_step_of_the_loss_beside_its_product_divides_nothing(kind):
    weight, optimizer = one_weight(kind)
    loss = weight.sum()
    optimizer.scale_loss(loss)
    loss.backward()
    with pytest.warns(UserWarning, match="other gradients, which are taken as not"):
        optimizer.step()
    assert weight.tolist() == [0.0, 0.0]


def test_two_optimizers_may_share_a_loss():
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    first, second = (
        MixedPrecisionLossScaleOptimizer(torch.optim.SGD([weight], lr=1.0), 8)
        for weight in weights
    )
    loss = (weights[0] + 3 * weights[1]).sum()
    ((first.scale_loss(loss) + second.scale_loss(loss)) / 2).backward()
    first.step()
    second.step()
    assert [weight.tolist() for weight in weights] == [[0.0, 0.0], [-2.0, -2.0]]


def test_a_step_without_gradients_ends_the_unscaling_by_hand():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = MixedPrecisionLossScaleOptimizer(torch.optim.SGD([weight], lr=1.0), 8)
    optimizer.unscale_()
    optimizer.step()
    weight.sum().backward()
    optimizer.unscale_()
    optimizer.step()
    assert weight.tolist() == [0.0, 0.0]


def test_the_mixture_is_found_if_the_first_gradient_is_new():
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    sgd = torch.optim.SGD([first, second], lr=1.0)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 8)
    second.sum().backward()
    with pytest.raises(UnsupportedError, match="each micro-batch"):
        optimizer.scale_loss((first + second).sum()).backward()
    assert second.grad.tolist() == [1.0, 1.0]


def test_the_mixture_is_found_if_the_first_gradient_is_zero():
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    sgd = torch.optim.SGD([first, second], lr=1.0)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 8)
    (0 * first + second).sum().backward()
    with pytest.raises(UnsupportedError, match="each micro-batch"):
        optimizer.scale_loss((first + second).sum()).backward()
    assert second.grad.tolist() == [1.0, 1.0]


@everyone
@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_of_before_may_be_cleared_in_between(kind, set_to_none):
    weight, optimizer = started_forgotten(kind, scale=8.0)
    for _ in range(3):
        weight.float().sum().backward()  # such as another optimizer's loss
        loss = optimizer.scale_loss(weight.float().sum())
        optimizer.zero_grad(set_to_none)
        loss.backward()
        optimizer.step()
        assert optimizer.last_step.applied


@everyone
def test_an_infinite_limit_measures_the_norm_alone(kind):
    weight = Parameter(torch.zeros(2))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = WRAPPERS[kind](sgd, 8.0, clip_norm=float("inf"))
    optimizer.scale_loss((weight * torch.tensor([3e4, 4e4])).sum()).backward()
    optimizer.step()
    assert weight.tolist() == [-3e4, -4e4]
    report = optimizer.last_step
    assert (report.norm, report.clip_factor) == (5e4, 1.0)


WRAPPERS_SHARED = [MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper]


@pytest.mark.parametrize("wrapper", WRAPPERS_SHARED)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.5}])
@pytest.mark.parametrize("expanded", [False, True])
def test_they_are_unscaled_and_clipped_once(wrapper, fused, options, expanded):
    """Without a look, each parameter would divide the one gradient again."""
    first, second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([first, second], lr=1.0, fused=fused)
    optimizer = wrapper(sgd, 8, **options)
    sums = first.sum() + second.sum() if expanded else (first + second).sum()
    found = torch.autograd.grad(optimizer.scale_loss(sums), [first, second])
    first.grad, second.grad = found
    optimizer.step()
    expected = -0.5 / 6**0.5 if options else -1.0
    both = torch.cat([first, second]).detach()
    torch.testing.assert_close(both, torch.full((6,), expected))


@pytest.mark.parametrize("wrapper", WRAPPERS_SHARED)
def test_overlapping_gradients_are_unscaled_once(wrapper):
    """As in a transformer on a batch of one: a learned token after the others."""
    position, token = nn.Parameter(torch.zeros(3, 2)), nn.Parameter(torch.zeros(1, 2))
    optimizer = wrapper(torch.optim.SGD([position, token], lr=1.0), 8)
    tokens = torch.cat([torch.ones(1, 2, 2), token[None]], 1) + position[None]
    optimizer.scale_loss((3 * tokens).sum()).backward()
    optimizer.step()
    assert position.tolist() == [[-3.0, -3.0]] * 3
    assert token.tolist() == [[-3.0, -3.0]]


def test_a_step_that_never_waits_unscales_them_once():
    first, second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([first, second], lr=1.0, fused=True)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 8, capturable=True)
    loss = optimizer.scale_loss((first + second).sum())
    first.grad, second.grad = torch.autograd.grad(loss, [first, second])
    optimizer.step()
    assert first.tolist() == second.tolist() == [-1.0] * 3


SIZES = [1, 3, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 70000]
"""Elements of small gradients are checked one by one, of large ones the sum."""
dtypes_finite = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)


def stepped(gradients):
    """Return whether a step on these gradients was applied, and the names to blame."""
    named = [(f"w{k}", torch.zeros_like(g.to_dense())) for k, g in enumerate(gradients)]
    named = [(name, Parameter(values)) for name, values in named]
    sgd = torch.optim.SGD(named, lr=0.0)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 1.0)
    for (_, weight), gradient in zip(named, gradients, strict=True):
        weight.grad = gradient
    optimizer.step()
    return optimizer.last_step.applied, optimizer.last_step.nonfinite


@dtypes_finite
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("size", SIZES)
def test_one_element_that_is_not_finite_skips_the_step(size, value, dtype):
    for place in range(2):
        gradients = [torch.ones(size, dtype=dtype) for _ in range(2)]
        gradients[place][size // 2] = value
        assert stepped(gradients) == (False, (f"w{place}",))


@dtypes_finite
@pytest.mark.parametrize("size", SIZES)
def test_finite_elements_may_add_up_to_infinity(size, dtype):
    largest = torch.full((size,), torch.finfo(dtype).max, dtype=dtype)
    assert stepped([largest, -largest]) == (True, ())


def test_infinities_that_cancel_are_found():
    both = torch.tensor([math.inf, -math.inf])
    assert stepped([both, torch.ones(2)]) == (False, ("w0",))


def test_rows_that_overflow_when_they_are_summed_are_found():
    places, largest = torch.zeros(1, 2, dtype=int), torch.full((2,), 3e38)
    rows = torch.sparse_coo_tensor(places, largest, (4,), check_invariants=True)
    assert stepped([rows, torch.ones(2)]) == (False, ("w0",))


def test_empty_and_strided_gradients_are_finite():
    gradients = [torch.ones(0), torch.ones(3, 0), torch.ones(200, 90).t()]
    assert stepped(gradients) == (True, ())


DEFAULTS = [torch.float16, torch.bfloat16, torch.float64]
# Not representable in half precision: above its range, and not enough digits.
SCALE = 66000.0
FUSED = partial(torch.optim.SGD, lr=0.5, fused=True)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def trained(wrap, dtype: torch.dtype) -> list[Tensor]:
    """Return a weight after two steps, and the state of the optimizer."""
    weight = Parameter(torch.tensor([1.0, 2.0], dtype=dtype))
    optimizer = wrap([weight])
    for _ in range(2):
        optimizer.zero_grad()
        optimizer.scale_loss((weight.float().square() * 1e-2).sum()).backward()
        optimizer.step()
    return [weight.detach(), optimizer.loss_scale, *optimizer.variables()]


WRAPS = {
    "masters": (
        lambda p: MixedPrecisionOptimizerWrapper(AdamOptimizer(p, 0.5), 8.0),
        torch.float16,
    ),
    "dynamic": (
        lambda p: MixedPrecisionLossScaleOptimizer(AdamOptimizer(p, 0.5), "dynamic"),
        torch.float32,
    ),
    "fused": (
        lambda p: MixedPrecisionLossScaleOptimizer(FUSED(p), SCALE),
        torch.float32,
    ),
    "capturable": (
        lambda p: MixedPrecisionLossScaleOptimizer(FUSED(p), SCALE, capturable=True),
        torch.float32,
    ),
}


@pytest.mark.parametrize("default", DEFAULTS, ids=str)
@pytest.mark.parametrize(("wrap", "dtype"), WRAPS.values(), ids=WRAPS)
def test_results_have_the_same_bits_and_dtypes(wrap, dtype, default) -> None:
    expected = trained(wrap, dtype)
    with default_dtype(default):
        results = trained(wrap, dtype)
    for result, value in zip(results, expected, strict=True):
        assert result.dtype == value.dtype
        assert result.equal(value)
