"""Steps of fused optimizers, which can divide gradients, and be skipped on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_pre_hooks

from lockstep.errors import UnsupportedError

Groups = Sequence[Mapping[str, Any]]


def is_fused(optimizer: Optimizer) -> bool:
    """Whether ``step`` uses ``grad_scale`` and ``found_inf``."""
    able = getattr(optimizer, "_step_supports_amp_scaling", None)
    groups = optimizer.param_groups
    if able is False or not all([group.get("fused", able) for group in groups]):
        return False
    # The module of some classes, such as Adafactor, is the package itself.
    comes_with_torch = f"{type(optimizer).__module__}.".startswith("torch.optim.")
    return able is not None or comes_with_torch


def path_to_divider(optimizer: Any) -> list[Any] | None:
    """Return wrappers around one that divides as it updates, and that one, or None."""
    if has_hooks(optimizer):
        return None
    path = [optimizer]
    while getattr(path[-1], "_divides_inside", False):
        path.append(path[-1].inner_optimizer)
    return path if is_fused(path[-1]) else None


def has_hooks(optimizer: Any) -> bool:
    """Whether a hook or a patched ``step``, here or inside, could change gradients."""
    if _global_optimizer_pre_hooks:
        return True
    while optimizer is not None:
        own = vars(optimizer)
        hooks = own.get("_optimizer_step_pre_hooks")
        if hooks and not all(getattr(h, "only_checks", False) for h in hooks.values()):
            return True
        # Not by a scheduler, which only counts the steps.
        step = own.get("step")
        is_original = getattr(step, "__wrapped__", None) is type(optimizer).step
        if step is not None and not (
            is_original and hasattr(step, "_wrapped_by_lr_sched")
        ):
            return True
        optimizer = own.get("inner_optimizer")
    return False


def overwrites_gradients(group: Mapping[str, Any]) -> bool:
    """Whether torch's step writes into the gradients of this group.

    With Nesterov's momentum, SGD adds it to them if it updates all tensors at once.
    On the CPU it does that only if it is told to.
    """
    if not group.get("nesterov") or group.get("weight_decay") or group.get("maximize"):
        return False
    at_once = group.get("foreach")
    if at_once is None and not group.get("fused"):
        return not all([parameter.is_cpu for parameter in group["params"]])
    return bool(at_once)


def in_layouts(
    parameters: Sequence[Tensor], gradients: Sequence[Tensor | None], groups: Groups
) -> list[Tensor | None]:
    """Return the gradients; if a group is fused, with the strides of the parameters.

    torch's fused kernels pair the elements of both by their places in memory, so they
    would read other elements, or beyond the end. ``backward`` returns such gradients,
    but ``torch.autograd.grad`` and reductions may not.
    """
    if not any(group.get("fused") for group in groups):
        return list(gradients)
    return [
        gradient
        if gradient is None
        or gradient.layout != torch.strided
        or gradient.stride() == parameter.stride()
        else torch.empty_like(parameter, requires_grad=False).copy_(gradient.detach())
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]


def step_dividing(
    optimizer: Optimizer,
    take: Callable[[], Any],
    grad_scale: Tensor | None,
    found_inf: Tensor | None = None,
) -> None:
    """Call ``take``: fused steps divide by ``grad_scale``, skip if ``found_inf``."""
    optimizer.grad_scale, optimizer.found_inf = grad_scale, found_inf
    try:
        take()
    finally:
        del optimizer.grad_scale, optimizer.found_inf


def step_undivided(
    path: Sequence[Any], take: Callable[[], Any], divisor: float, device: torch.device
) -> None:
    """Call ``take``, the step of ``path[0]``, in which ``path[-1]`` divides gradients.

    Meanwhile the wrappers around it have ``divisor`` as ``_undivided_by``. ``path``: of
    :func:`path_to_divider`.
    """
    *wrappers, divider = path
    for wrapper in wrappers:
        wrapper._undivided_by = divisor
    try:
        number = torch.full((), divisor, dtype=torch.float32, device=device)
        step_dividing(divider, take, number)
    finally:
        for wrapper in wrappers:
            del wrapper._undivided_by


def make_momentum(optimizer: Optimizer) -> None:
    """Create the momentum buffers that fused SGD lacks, filled with zeros.

    SGD creates them uninitialized, and a skipped step would leave them so. And it fails
    if only some parameters have one. With zeros, the first step has the same result,
    because momentum 0 + g = g. That is not so with dampening.
    """
    if not isinstance(optimizer, SGD):
        return
    for group in optimizer.param_groups:
        needed = group["fused"] and group["momentum"] and not group["dampening"]
        for parameter in group["params"] if needed else ():
            if parameter.grad is not None:
                state = optimizer.state[parameter]
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = torch.zeros_like(parameter)


def require_fused(owner: str, optimizer: Optimizer) -> None:
    """Raise unless ``optimizer`` can skip a step without a host sync.

    Dampened momentum cannot, because its first applied step differs from the others.
    """
    if not is_fused(optimizer):
        raise UnsupportedError(
            f"{owner}: expected a fused optimizer for capturable=True, got "
            f"{type(optimizer).__name__} that is not; make it so, as in "
            "torch.optim.Adam(params, fused=True)."
        )
    for group in optimizer.param_groups:
        if group.get("momentum") and group.get("dampening"):
            raise UnsupportedError(
                f"{owner}: expected momentum without dampening for capturable=True, "
                f"got {group['dampening']:g}; set dampening to 0, or leave capturable "
                "off."
            )
