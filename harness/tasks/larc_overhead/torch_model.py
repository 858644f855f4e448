"""LARC in PyTorch, in place, between the backward pass and the step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from harness.tasks.larc_overhead import EPSILON, ETA, RATE
from harness.tasks.overhead.torch_model import Gradients, parameters, prepared
from harness.timing import Makers, Step
from lockstep.pytorch import post_process_gradients


def makers(seed: int, device: str, model: str) -> Makers:
    """Return the builder of each step: ``ours``, ``loop``."""
    torch.set_num_threads(1)
    gradients = Gradients(model, 1.0, device, torch.float32)

    def make(step: Callable[[list[Tensor]], Step]) -> Step:
        weights = parameters(model, device, torch.float32)
        return prepared(lambda: gradients.fill(weights), step(weights), device)

    kinds = {"ours": our_step, "loop": loop_step}
    return {name: partial(make, step) for name, step in kinds.items()}


def our_step(weights: list[Tensor]) -> Step:
    """Return a step of ``post_process_gradients``, which updates gradients in place."""
    larc_params = {"larc_eta": ETA, "epsilon": EPSILON}

    def step() -> None:
        pairs = [(weight.grad, weight) for weight in weights]
        post_process_gradients(pairs, [], RATE, None, larc_params, in_place=True)

    return step


def loop_step(weights: list[Tensor], weight_decay: float = 0.0) -> Step:
    """Return the loop of the known LARC wrapper, with a weight decay of 0."""

    @torch.no_grad()
    def step() -> None:
        for weight in weights:
            weight_norm, gradient_norm = weight.norm(), weight.grad.norm()
            if weight_norm != 0 and gradient_norm != 0:
                decayed = gradient_norm + weight_norm * weight_decay + EPSILON
                rate = min(ETA * weight_norm / decayed / RATE, 1)
                weight.grad += weight_decay * weight
                weight.grad *= rate

    return step
