"""Steps of fused Adam in PyTorch, bare and wrapped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harness.tasks.overhead.torch_model import Gradients, parameters, prepared
from harness.timing import Makers, Step
from lockstep.pytorch import (
    AdamOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)

SCALE, LIMIT, RATE = 2.0**10, 1.0, 1e-4


def makers(seed: int, device: str, model: str, wrapper: str) -> Makers:
    """Return the builder of each step: ``ours``, ``bare`` (fused), ``foreach``."""
    torch.set_num_threads(1)
    dtype = torch.float16 if wrapper == "masters" else torch.float32
    kinds = {
        "ours": partial(wrapped_step, WRAPPERS[wrapper], dtype),
        "bare": partial(adam_step, {"fused": True}),
        "foreach": partial(adam_step, {"foreach": True}),
    }
    return {name: partial(step, model, device) for name, step in kinds.items()}


def fused(weights: list[Tensor]) -> torch.optim.Optimizer:
    """Return torch's fused Adam."""
    return torch.optim.Adam(weights, lr=RATE, fused=True)


def multitask(weights: list[Tensor]) -> Any:
    """Return the multitask wrapper around fused Adam."""
    return MultitaskOptimizerWrapper(fused(weights))


def rows(weights: list[Tensor]) -> Any:
    """Return row clipping of the first tensor, as for an embedding among layers."""
    return VariableClippingOptimizer(fused(weights), {weights[0]: [1]}, LIMIT)


def scaling(weights: list[Tensor]) -> Any:
    """Return a dynamic loss scale around fused Adam."""
    return MixedPrecisionLossScaleOptimizer(fused(weights), "dynamic")


def masters(weights: list[Tensor]) -> Any:
    """Return float32 masters around fused Adam, with a fixed loss scale."""
    return MixedPrecisionOptimizerWrapper(fused(weights), SCALE)


def stacked(weights: list[Tensor]) -> Any:
    """Return a dynamic loss scale around multitask around row clipping."""
    inner = MultitaskOptimizerWrapper(rows(weights))
    return MixedPrecisionLossScaleOptimizer(inner, "dynamic")


def tf1_adam(weights: list[Tensor]) -> Any:
    """Return our Adam, with the rule of TensorFlow."""
    return AdamOptimizer(weights, RATE)


WRAPPERS: dict[str, Callable[[list[Tensor]], Any]] = {
    "multitask": multitask,
    "rows": rows,
    "scaling": scaling,
    "masters": masters,
    "stacked": stacked,
    "AdamOptimizer": tf1_adam,
}


def wrapped_step(
    wrap: Callable[[list[Tensor]], Any], dtype: torch.dtype, model: str, device: str
) -> Step:
    """Return a wrapped step, preceded by loss scaling if there is a scale."""
    weights = parameters(model, device, dtype)
    gradients = Gradients(model, SCALE, device, dtype)
    optimizer = wrap(weights)
    loss = weights[0].new_ones((), requires_grad=True)
    scale_loss = getattr(optimizer, "scale_loss", None)

    def prepare() -> None:
        gradients.fill(weights)
        if scale_loss is not None:
            scale_loss(loss)

    return prepared(prepare, optimizer.step, device)


def adam_step(options: dict[str, bool], model: str, device: str) -> Step:
    """Return a step of Adam with these options."""
    weights = parameters(model, device, torch.float32)
    gradients = Gradients(model, SCALE, device, torch.float32)
    step = torch.optim.Adam(weights, lr=RATE, **options).step
    return prepared(lambda: gradients.fill(weights), step, device)
