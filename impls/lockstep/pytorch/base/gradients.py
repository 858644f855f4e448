"""Checks of an optimizer's parameters and of their gradients for one step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from numbers import Real
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.errors import LockstepError
from lockstep.messages import pytorch as words
from lockstep.messages.base import refusals
from lockstep.messages.base.differentiation import not_listed
from lockstep.messages.base.pairs import as_pairs, require_gradients, require_like
from lockstep.messages.nouns import PYTORCH
from lockstep.pytorch.tensors import shards

__all__ = [
    "Pairs",
    "check_grad_loss",
    "check_gradient",
    "check_group",
    "check_pairs",
    "dtype_name",
    "gradients_set_to",
    "in_group",
    "is_alike",
    "listed",
    "name_in",
    "named_parameters",
    "refuse_sharded",
    "require_split_alike",
    "require_tensor",
]

Pairs = list[tuple[Tensor | None, Tensor]]


def named_parameters(optimizer: Optimizer) -> dict[Tensor, str]:
    """Return each parameter of all groups once, with its name.

    The names are those that the optimizer was constructed with. Without names, it is
    the position, such as ``param_groups[0]['params'][3]``.
    """
    return {
        parameter: group["param_names"][position]
        if "param_names" in group
        else f"param_groups[{number}]['params'][{position}]"
        for number, group in enumerate(optimizer.param_groups)
        for position, parameter in enumerate(group["params"])
    }


def name_in(names: Mapping[Tensor, str], parameter: Tensor) -> str:
    """Return the name of a parameter, also of one that has left the groups since."""
    return names.get(parameter) or f"a removed parameter {list(parameter.shape)}"


def check_group(owner: str, param_group: Any) -> None:
    """Raise unless this is a parameter group. Entries of an iterator are unchecked."""
    if not isinstance(param_group, Mapping):
        raise words.NOT_A_GROUP.error(owner=owner, got=type(param_group).__name__)
    listed = param_group.get("params")
    kind = type(listed).__name__
    if not isinstance(listed, Iterable) or isinstance(listed, str | Mapping | Set):
        raise words.NOT_A_GROUP.error(owner=owner, got=f"{kind} as 'params'")
    for entry in listed if isinstance(listed, list | tuple) else ():
        last = entry[-1] if isinstance(entry, tuple) and entry else entry
        if not isinstance(last, Tensor):
            raise words.NOT_A_GROUP.error(
                owner=owner, got=f"{type(last).__name__} among 'params'"
            )


def refuse_sharded(
    owner: str, parameters: Iterable[Tensor], option: str | None = None
) -> None:
    """Raise if any parameter or gradient is split over ranks.

    ``option``: the argument that needs whole tensors; None if the wrapper always does.
    """
    if shards.are_among(parameters):
        if option is None:
            raise words.SHARDED.error(owner=owner)
        raise words.SHARDED_OPTION.error(owner=owner, option=option)


def require_split_alike(
    owner: str, pairs: Iterable[tuple[Any, Tensor]], names: Mapping[Tensor, str]
) -> None:
    """Raise if a parameter is split over ranks but its gradient is not."""
    for gradient, parameter in pairs:
        is_whole = gradient is not None and not shards.are_among([gradient])
        if is_whole and shards.are_among([parameter]):
            raise words.NOT_SPLIT.error(owner=owner, name=names[parameter])


def in_group(params: Any) -> list[Any]:
    """Return the parameters of 'params': a tensor, or a list of plain or named ones."""
    listed = [params] if isinstance(params, Tensor) else params
    return [entry[-1] if isinstance(entry, tuple) else entry for entry in listed]


@contextmanager
def gradients_set_to(
    parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]
) -> Iterator[None]:
    """Replace ``.grad`` inside the block, and restore it afterwards."""
    before = [(parameter, parameter.grad) for parameter in parameters]
    try:
        for (parameter, _), gradient in zip(before, gradients, strict=True):
            parameter.grad = gradient
        yield
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


def check_pairs(
    grads_and_vars: Iterable[Any], optimizer: Optimizer, owner: str
) -> Pairs:
    """Return the pairs as a list, or raise before anything changes."""
    pairs = as_pairs(grads_and_vars, owner)
    # ``id`` is used because the hash of a tensor is slow. Names are only looked up for
    # errors.
    left = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for gradient, parameter in pairs:
        if id(parameter) not in left:
            raise not_a_parameter(gradient, parameter, optimizer, owner)
        left.remove(id(parameter))
        if gradient is not None and not is_alike(gradient, parameter):
            name = named_parameters(optimizer)[parameter]
            check_gradient(gradient, parameter, name, owner)
    if all(gradient is None for gradient, _ in pairs):
        names = named_parameters(optimizer)
        require_gradients(pairs, owner, [names[p] for _, p in pairs])
    if shards.are_among([parameter for _, parameter in pairs]):
        require_split_alike(owner, pairs, named_parameters(optimizer))
    return pairs


def not_a_parameter(
    gradient: Any, parameter: Any, optimizer: Optimizer, owner: str
) -> LockstepError:
    """Return the error for a parameter that is repeated, unknown or not a tensor."""
    names = {id(p): name for p, name in named_parameters(optimizer).items()}
    if id(parameter) in names:
        return words.REPEATED.error(owner=owner, name=names[id(parameter)])
    if id(gradient) in names or not isinstance(parameter, Tensor):
        return refusals.NOT_A_VARIABLE.error(
            owner=owner, nouns=PYTORCH, got=type(parameter).__name__
        )
    return words.UNKNOWN_PARAMETER.error(owner=owner, got=list(parameter.shape))


def is_alike(gradient: Any, parameter: Tensor) -> bool:
    """Whether a gradient has the shape, dtype and device of its parameter."""
    return (
        isinstance(gradient, Tensor)
        and gradient.shape == parameter.shape
        and gradient.dtype == parameter.dtype
        and gradient.device == parameter.device
    )


def check_gradient(gradient: Any, parameter: Tensor, name: str, owner: str) -> None:
    """Raise unless ``gradient`` is None or a tensor that fits ``parameter``."""
    if gradient is None or is_alike(gradient, parameter):
        return
    if not isinstance(gradient, Tensor):
        raise not_a_gradient(gradient, owner, name)
    like = tuple(gradient.shape), dtype_name(gradient)
    require_like(owner, name, like, (tuple(parameter.shape), dtype_name(parameter)))
    if gradient.device != parameter.device:
        got, expected = str(gradient.device), str(parameter.device)
        raise words.OTHER_DEVICE.error(
            owner=owner, parameter=expected, name=name, gradient=got
        )


def check_grad_loss(grad_loss: Any, owner: str) -> None:
    """Raise unless ``grad_loss`` is None, a number or a tensor."""
    number = isinstance(grad_loss, Real) and not isinstance(grad_loss, bool)
    if not (grad_loss is None or number or isinstance(grad_loss, Tensor)):
        raise words.BAD_GRAD_LOSS.error(owner=owner, got=grad_loss)


def listed(var_list: Any, owner: str) -> list[Any]:
    """Return ``var_list`` as a list; raise for a single tensor or a non-iterable."""
    if isinstance(var_list, str | Tensor) or not isinstance(var_list, Iterable):
        raise not_listed(owner, var_list)
    return list(var_list)


def require_tensor(gradient: Any, owner: str, name: str) -> None:
    """Raise unless ``gradient`` is None or a tensor."""
    if gradient is not None and not isinstance(gradient, Tensor):
        raise not_a_gradient(gradient, owner, name)


def not_a_gradient(gradient: Any, owner: str, name: str) -> LockstepError:
    """Return the error for a gradient that is not a tensor."""
    got = type(gradient).__name__
    return words.NOT_A_GRADIENT.error(owner=owner, got=got, name=name)


def dtype_name(tensor: Tensor) -> str:
    """Return the name of a tensor's dtype, such as ``float32``."""
    return str(tensor.dtype).removeprefix("torch.")
