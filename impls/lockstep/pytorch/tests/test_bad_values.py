"""Values that make no sense are a sentence, not torch's own error or a silent step."""

import math

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

from lockstep import pytorch as lockstep
from lockstep.errors import LockstepError
from lockstep.pytorch import lr_policies


def weight(dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.ones(2, dtype=dtype))


def sgd(parameter: nn.Parameter | None = None) -> torch.optim.SGD:
    parameter = weight() if parameter is None else parameter
    return torch.optim.SGD([("w", parameter)], lr=0.1)


def scaled(scale: object = 8) -> lockstep.MixedPrecisionLossScaleOptimizer:
    return lockstep.MixedPrecisionLossScaleOptimizer(sgd(), scale)


def mixed() -> lockstep.MixedPrecisionOptimizerWrapper:
    return lockstep.MixedPrecisionOptimizerWrapper(sgd(), 8)


def step_with(**arguments: object):
    parameter = weight()
    given = {"optimizer": "SGD", "learning_rate_decay_fn": lambda step: 0.1}
    return lockstep.optimize_loss(
        parameter.sum,
        optimizer_params=None,
        var_list=[parameter],
        **{**given, **arguments},
    )


def poly(**arguments: object) -> lockstep.PolicyLR:
    return lockstep.PolicyLR(sgd(), "poly_decay", decay_steps=10, **arguments)


PAIRS = [
    None,
    5,
    "ab",
    torch.ones(2, 2),
    [weight()],
    [torch.tensor([1.0, math.nan])],
    [(1.0, weight())],
    [(torch.ones(2, dtype=torch.int32), weight())],
    [(torch.ones(2, dtype=torch.complex64), weight())],
]


@pytest.mark.parametrize("pairs", PAIRS)
def test_a_scaler_looks_at_nothing_but_pairs_of_real_gradients(pairs):
    with pytest.raises(LockstepError, match=r"AutomaticLossScaler.check_grads: exp"):
        lockstep.AutomaticLossScaler.check_grads(pairs)


def test_a_scaler_still_finds_nothing_in_no_gradients():
    assert lockstep.AutomaticLossScaler.check_grads([])[1].item() == -math.inf


@pytest.mark.parametrize(
    "told",
    [
        (None, None),
        (False, "x"),
        ("x", 1.0),
        (False, -1.0),
        (torch.tensor(False), torch.tensor(-1.0)),
        (False, True),
    ],
)
def test_a_scaler_is_told_a_flag_and_a_magnitude(told):
    scaler = lockstep.AutomaticLossScaler()
    before = scaler.state_dict()
    with pytest.raises(ValueError, match=r"update_op: (has_nan|amax): expected"):
        scaler.update_op(*told)
    assert scaler.state_dict() == before


@pytest.mark.parametrize("scale", [math.nan, 0.0, -1.0, "x"])
def test_a_saved_scaler_has_a_scale(scale):
    scaler = lockstep.AutomaticLossScaler()
    with pytest.raises(ValueError, match="AutomaticLossScaler: state: loss_scale"):
        scaler.load_state_dict({**scaler.state_dict(), "loss_scale": scale})


@pytest.mark.parametrize("scale", [math.nan, 0, -1.0, 1e39])
def test_a_saved_scale_that_would_never_train_is_refused_and_changes_nothing(scale):
    optimizer = scaled("dynamic")
    saved = optimizer.state_dict()
    saved["param_groups"][0]["loss_scale"] = scale
    with pytest.raises(ValueError, match="saved loss_scale: expected > 0, finite"):
        optimizer.load_state_dict(saved)
    assert optimizer.loss_scale.item() == 2.0**15


def test_a_name_that_two_parameters_have_is_not_clipped_by_chance():
    groups = [{"params": [("t", weight())]}, {"params": [("t", weight())]}]
    with pytest.raises(ValueError):
        opt = torch.optim.SGD(groups, lr=0.1)
        lockstep.VariableClippingOptimizer(opt, {"t": [0]}, 0.5)


@pytest.mark.parametrize("make", [scaled, mixed])
@pytest.mark.parametrize("loss", [3.0, None, [torch.ones(())]])
def test_a_loss_that_is_no_tensor_is_not_scaled(make, loss):
    with pytest.raises(TypeError, match="expected a loss tensor"):
        make().scale_loss(loss)


@pytest.mark.parametrize("writer", [3, "runs", nn.Module])
def test_a_step_takes_no_writer_that_cannot_write(writer):
    with pytest.raises(TypeError, match="writer: expected what has add_scalar"):
        step_with().summaries_to(writer)


@pytest.mark.parametrize("optimizer", [None, "x", 3])
def test_a_policy_is_scheduled_for_an_optimizer(optimizer):
    with pytest.raises(TypeError, match=r"PolicyLR: optimizer: expected a torch.opt"):
        lockstep.PolicyLR(optimizer, "fixed_lr")


@pytest.mark.parametrize("rate", [None, "x", -1, math.nan, math.inf, True])
def test_a_callable_that_returns_no_rate_is_refused_before_it_is_written(rate):
    with pytest.raises(ValueError, match="expected a finite rate >= 0"):
        lockstep.PolicyLR(sgd(), lambda step: rate)
    scheduler = lockstep.PolicyLR(sgd(), lambda step: rate if step else 0.1)
    scheduler.optimizer.step()
    with pytest.raises(ValueError, match="expected a finite rate >= 0"):
        scheduler.step()
    assert scheduler.optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("state", [None, "x", {}, StepLR(sgd(), 3).state_dict()])
def test_a_policy_goes_on_from_its_own_state_alone(state):
    scheduler = poly()
    before = scheduler.state_dict()
    with pytest.raises(ValueError, match="PolicyLR: state: expected last_epoch"):
        scheduler.load_state_dict(state)
    assert scheduler.state_dict() == before


@pytest.mark.parametrize("step", [torch.tensor(2.5), True, 2.5, -1])
def test_a_policy_counts_steps_in_integers(step):
    with pytest.raises(ValueError, match="global_step: expected an integer >= 0 or a"):
        lr_policies.poly_decay(step, 0.1, 10)


@pytest.mark.parametrize("optimizer", [scaled, mixed, lambda: step_with().optimizer])
def test_a_closure_is_a_function(optimizer):
    with pytest.raises(TypeError):
        optimizer().step("x")


CALLS = {
    "a config has the constructor's arguments": (
        lambda: lockstep.DynamicLossScale.from_config({"foo": 1}),
        "DynamicLossScale.from_config: argument: expected one of",
    ),
    "params of a scaler are a dict": (
        lambda: lockstep.AutomaticLossScaler("Backoff", "x"),
        "params: expected a dict or None, got 'x'",
    ),
    "an automatic scaler has a wrapper of its own": (
        lambda: scaled(lockstep.AutomaticLossScaler()),
        "MixedPrecisionOptimizerWrapper",
    ),
    "a bool is no rate of a policy": (
        lambda: lr_policies.fixed_lr(0, True),
        "fixed_lr: learning_rate: expected a finite rate >= 0, got True",
    ),
    "a bool is no patience": (
        lambda: lockstep.DynamicLossScale(8, hysteresis=True),
        "hysteresis: expected an int >= 1, got True",
    ),
    "integers are not clipped": (
        lambda: lockstep.clip_gradients_by_global_norm(
            [(torch.ones(2, dtype=torch.int64), weight())], 1.0
        ),
        "expected floating-point gradients, got int64",
    ),
    "eta has no default": (
        lambda: lockstep.post_process_gradients(
            [(torch.ones(2), weight())], [], 0.1, None, {"larc_eta": -1.0}
        ),
        r"larc_eta: expected > 0, finite, got -1.0",
    ),
}


@pytest.mark.parametrize(("call", "words"), CALLS.values(), ids=CALLS)
def test_a_sentence_says_what_is_wrong(call, words):
    with pytest.raises(LockstepError, match=words):
        call()
