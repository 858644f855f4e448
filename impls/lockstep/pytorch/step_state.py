"""A saved training step: whether it is one of this step, found out before it is loaded.

A state does not name its optimizer; its groups have the hyper-parameters of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.pytorch.foreign_state import LAYOUT, check_groups
from lockstep.pytorch.wrapper import OptimizerWrapper
from lockstep.spec import optimize_loss as words

__all__ = ["check_saved"]

OWN = ("optimizer", "global_step", "micro_step", "iter_size", "accumulators")
"""The keys of a step's ``state_dict``."""
ADDED = {
    "params",
    "param_names",
    LAYOUT,
    "initial_lr",
    "max_lr",
    "min_lr",
    "base_momentum",
    "max_momentum",
    "swa_lr",
}
"""What wrappers and torch's schedulers add to groups; so are the prefixes below."""
PREFIXES = ("loss_scale", "agn/")


def check_saved(step: Any, state_dict: Any) -> list[Tensor | None]:
    """Return the saved sums on the devices of the parameters.

    Raises:
        ValueError: the state of something else.
    """
    if not isinstance(state_dict, Mapping) or set(state_dict) != set(OWN):
        found = isinstance(state_dict, Mapping)
        got = ", ".join(map(str, state_dict)) if found else repr(state_dict)
        raise words.other_state(got or "nothing")
    for name in ("global_step", "micro_step", "iter_size"):
        count = state_dict[name]
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise words.not_a_count(name, count)
    # A sum of shares of another size cannot go on. With a flag it may be of more of
    # them than iter_size.
    ours = step.settings.iter_size if step.settings.accumulates else 1
    if state_dict["micro_step"] and (ours == 1 or state_dict["iter_size"] != ours):
        raise words.other_iter_size(state_dict["micro_step"], state_dict["iter_size"])
    sums = checked_sums(state_dict["accumulators"], step.parameters)
    check_optimizer(step.optimizer, state_dict["optimizer"])
    return sums


def checked_sums(saved: Any, parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """Return copies of sums, each on the device of its parameter."""
    if not isinstance(saved, list) or not all(
        total is None or isinstance(total, Tensor) for total in saved
    ):
        raise words.other_state(f"accumulators {saved!r}")
    shapes = [None if total is None else tuple(total.shape) for total in saved]
    fits = len(shapes) == len(parameters) and all(
        shape in (None, tuple(p.shape))
        for shape, p in zip(shapes, parameters, strict=True)
    )
    if not fits:
        raise words.other_state(f"sums of shapes {shapes}")
    return [
        None if total is None else total.to(p.device, copy=True)
        for total, p in zip(saved, parameters, strict=True)
    ]


def check_optimizer(optimizer: Optimizer, saved: Any) -> None:
    """Raise for the state of another rule, or of other parameters."""
    if not is_state(saved):
        raise words.other_state(f"the optimizer {saved!r:.60}")
    if isinstance(optimizer, OptimizerWrapper):
        optimizer._check_saved(dict(saved))
    else:
        check_groups(words.OWNER, saved, optimizer, has_masters=False)
    for ours, theirs in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        missing = [
            name
            for name, default in optimizer.defaults.items()
            if name not in theirs and not is_switch(default)
        ]
        foreign = [name for name in theirs if name not in ours and not is_added(name)]
        if missing or foreign:
            raise words.other_rule(base_name(optimizer), missing, foreign)


def is_state(saved: Any) -> bool:
    """Say whether this has the form of what ``state_dict`` of an optimizer returns."""
    if not isinstance(saved, Mapping) or not {"state", "param_groups"} <= set(saved):
        return False
    groups = saved["param_groups"]
    return (
        isinstance(saved["state"], Mapping)
        and isinstance(groups, list)
        and all(isinstance(g, Mapping) and "params" in g for g in groups)
    )


def is_switch(default: Any) -> bool:
    """Say whether a later torch may have added this: such options are off at first."""
    return default is None or isinstance(default, bool)


def is_added(name: str) -> bool:
    """Say whether a wrapper or a scheduler may have put this into a group."""
    return name in ADDED or name.startswith(PREFIXES)


def base_name(optimizer: Any) -> str:
    """Return the name of the innermost optimizer's class."""
    while isinstance(optimizer, OptimizerWrapper):
        optimizer = optimizer.inner_optimizer
    return type(optimizer).__name__
