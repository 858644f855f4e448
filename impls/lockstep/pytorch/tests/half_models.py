"""Models of which some layers are in half precision, and their training."""

from __future__ import annotations

import pytest
import torch

from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionOptimizerWrapper,
)
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, batches

halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
everyone = pytest.mark.parametrize("name", ALL)
some = pytest.mark.parametrize(
    "name", ["SGD", "SGD momentum", "Adam", "Adam fused", "TF1 Adam", "Momentum"]
)
SCALES = {
    "none": lambda: None,
    "number": lambda: 8,
    "dynamic": lambda: DynamicLossScale(4.0, 2),
    "hysteresis": lambda: DynamicLossScale(4.0, 2, hysteresis=2),
    "backoff": lambda: AutomaticLossScaler("Backoff", {"scale_max": 8.0}),
    "logmax": lambda: AutomaticLossScaler("LogMax", {"scale_max": 64.0}),
}


def rules_and_scales(names):
    """Parametrize by both: every rule with one scale, and two rules with every scale.

    The soak has all pairs.
    """
    pairs = [
        pytest.param(
            *(name, scale),
            marks=[pytest.mark.soak]
            * (scale != "dynamic" and name not in ("Adam", "TF1 Adam")),
        )
        for name in names
        for scale in SCALES
    ]
    return pytest.mark.parametrize(("name", "scale"), pairs)


def mixed(dtype=torch.float16):
    """Return a model of which one head stays in float32."""
    model = TwoHeads().to(dtype)
    model.b.float()
    return model


def loss_of(model, inputs, letter="+"):
    """Return the loss of a model some of whose layers may be in half precision."""
    hidden = model.body(inputs.to(model.body.weight.dtype)).tanh()
    total = torch.zeros(())
    for head in (model.a, model.b):
        if letter in "+" or head is (model.a if letter == "a" else model.b):
            total = total + head(hidden.to(head.weight.dtype)).float().square().sum()
    return total


def train(model, optimizer, pattern="+++", seed=0):
    """Take a step for each letter: + both heads, a or b, 0 none, ! an overflow."""
    for letter, inputs in zip(pattern, batches(len(pattern), seed), strict=True):
        optimizer.zero_grad()
        if letter != "0":
            heads = "+" if letter == "!" else letter
            optimizer.scale_loss(loss_of(model, inputs, heads)).backward()
        if letter == "!":
            model.a.bias.grad[0] = torch.inf
        optimizer.step()


def wrapped(model, name="Adam", loss_scale=8.0, **options):
    made = ALL[name](model.named_parameters())
    return MixedPrecisionOptimizerWrapper(made, loss_scale, **options)


def everything(model, optimizer):
    """Return copies of weights, masters and state, by name."""
    found = {}
    for name, weight in model.named_parameters():
        master = optimizer.master(weight)
        found[name], found[f"{name} master"] = weight, master
        for key, value in optimizer.state.get(master, {}).items():
            found[f"{name}/{key}"] = torch.as_tensor(value)
    return {key: value.detach().clone() for key, value in found.items()}


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for key, value in got.items():
        assert value.dtype == expected[key].dtype, key
        torch.testing.assert_close(
            value, expected[key], rtol=0, atol=0, equal_nan=True, msg=key
        )


def wrapped_weight(weight, lr=1.0, loss_scale=1.0, **options):
    sgd = torch.optim.SGD([("weight", weight)], lr=lr)
    return MixedPrecisionOptimizerWrapper(sgd, loss_scale, **options)


def step_on(weight, optimizer, gradient):
    weight.grad = gradient.to(weight.dtype)
    optimizer.step()
