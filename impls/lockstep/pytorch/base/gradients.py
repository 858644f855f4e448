"""Until the last importer has moved: see :mod:`lockstep.pytorch.gradients`."""

from collections.abc import Iterable, Mapping, Set
from typing import Any

from torch import Tensor

from lockstep.messages import pytorch as words
from lockstep.messages.base.differentiation import not_listed
from lockstep.pytorch import shards
from lockstep.pytorch.gradients import *  # noqa: F403


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


def in_group(params: Any) -> list[Any]:
    """Return the parameters of 'params': a tensor, or a list of plain or named ones."""
    listed = [params] if isinstance(params, Tensor) else params
    return [entry[-1] if isinstance(entry, tuple) else entry for entry in listed]


def require_split_alike(
    owner: str, pairs: Iterable[tuple[Any, Tensor]], names: Mapping[Tensor, str]
) -> None:
    """Raise if a parameter is split over ranks but its gradient is not."""
    for gradient, parameter in pairs:
        is_whole = gradient is not None and not shards.are_among([gradient])
        if is_whole and shards.are_among([parameter]):
            raise words.NOT_SPLIT.error(owner=owner, name=names[parameter])


def listed(var_list, owner):
    """Return ``var_list`` as a list; raise for a single tensor or a non-iterable."""
    if isinstance(var_list, str | Tensor) or not isinstance(var_list, Iterable):
        raise not_listed(owner, var_list)
    return list(var_list)
