"""A PyTorch learning-rate scheduler for the policies."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep import policies
from lockstep.checks import number_of, require, with_full_name
from lockstep.errors import (
    DtypeError,
    NotAnOptimizerError,
    OutOfRangeError,
    UnsupportedError,
    warn_user,
)

BLOCK = 1024
"""The number of rates that are computed at a time."""
SAVED = ("last_epoch", "base_lrs", "_step_count")
"""Attributes that determine the next rates."""


class PolicyLR(LRScheduler):
    """Write the rate of a policy into every parameter group after each step.

    For group k with initial rate i_k: lr_k = policy(s) i_k / i_0, where s is the number
    of calls of ``step`` so far. The policy's ``learning_rate`` is i_0. If
    ``learning_rate`` is given, it replaces the optimizer's default rate,
    ``optimizer.defaults["lr"]``: lr_k = policy(s) i_k / default rate.

    Args:
        optimizer: a torch optimizer or a wrapper of ours.
        policy: the name of a policy, or a callable from the step to a rate, such as
            ``functools.partial(lr_policies.poly_decay, learning_rate=0.1, ...)``.
        last_epoch: the index of the last completed step, -1 at the beginning of
            training, as in every scheduler of torch.
        arguments: for a name: the policy's arguments; ``lr`` is ``learning_rate``.

    Raises:
        UnknownNameError: no policy or parameter has this name; the message suggests the
            nearest.
        OutOfRangeError: an argument is missing or out of range; a callable returns no
            valid rate, now or at a later step; or ``learning_rate`` is given, the
            groups have several rates, and the optimizer has no default rate.
        TypeError: no optimizer, or a callable that does not accept the step.

    The rate depends only on the step, so a run that is resumed through ``state_dict``
    has the same rates bit for bit. As with torch's ``LambdaLR``, a callable is not
    saved: create the scheduler with the same policy again. If a rate is a tensor, it is
    written in place.

    Example:
        >>> import torch
        >>> from lockstep.pytorch import PolicyLR
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5)
        >>> scheduler = PolicyLR(optimizer, "poly_decay", decay_steps=10)
        >>> for _ in range(5):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> optimizer.param_groups[0]["lr"]
        0.25
    """

    def __init__(
        self,
        optimizer: Optimizer,
        policy: str | Callable[[int], float],
        last_epoch: int = -1,
        **arguments: Any,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise NotAnOptimizerError(
                "PolicyLR: optimizer: expected a torch.optim.Optimizer, got "
                f"{type(optimizer).__name__}; pass the optimizer first."
            )
        if not isinstance(policy, str) and not callable(policy):
            raise DtypeError(
                "PolicyLR: policy: expected the name of a policy or a function of the "
                f"step, got {policy!r}; pass 'poly_decay', for example."
            )
        if callable(policy) and arguments:
            raise OutOfRangeError(
                "PolicyLR: expected no further arguments beside a callable, got "
                f"{', '.join(arguments)}; put them into it with functools.partial."
            )
        groups = optimizer.param_groups
        rates = [float(group.get("initial_lr", group["lr"])) for group in groups]
        self._default_rate: float | None = None
        if isinstance(policy, str):
            arguments = with_full_name("PolicyLR", arguments)
            default = optimizer.defaults.get("lr")
            if "learning_rate" in arguments and 0 < number_of(default) < math.inf:
                self._default_rate = float(default)
            elif "learning_rate" in arguments and len(set(rates)) > 1:
                raise OutOfRangeError(
                    "PolicyLR: learning_rate: expected a default rate > 0 of the "
                    f"optimizer, because its groups differ, got {default!r}; leave "
                    "learning_rate out, and it is that of the first group."
                )
            arguments = policies.bind(policy, {"learning_rate": rates[0], **arguments})
            policy = functools.partial(policies.POLICIES[policy], **arguments)
        self._policy = policy
        self._rate(0)
        self._ahead: dict[int, float] = {}
        self._equal_groups = 0
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: int | None = None) -> None:
        """Count one step, or go to step ``epoch``, and write the rate of every group.

        Steps may come in any order, because no rate depends on another. For our own
        policies, a block of rates is computed at a time.

        Raises:
            OutOfRangeError: ``epoch`` is no step, a callable returns no valid rate, or
                the optimizer has other groups than before. Then no step is counted.
        """
        count = self._step_count
        if count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warn_user(
                "PolicyLR.step: expected optimizer.step() before it, got none, so that "
                "the first rate was never used; call scheduler.step() after "
                "optimizer.step()."
            )
        if epoch is None:
            step = self.last_epoch + 1
        else:
            policies.check_step("PolicyLR.step", epoch)
            step = int(epoch)
        try:
            rate = self._ahead[step]
        except KeyError:
            rate = self._look_ahead(step)
        groups = self.optimizer.param_groups
        if len(groups) == self._equal_groups:
            for group in groups:
                if type(group["lr"]) is float:
                    group["lr"] = rate
                else:
                    write(group, rate)
        else:
            self._write_each(rate)
        self._step_count, self.last_epoch = count + 1, step

    @functools.cached_property
    def ratios(self) -> list[float]:
        """The initial rate of each group over the rate that the policy replaces."""
        rates = [float(rate) for rate in self.base_lrs]
        unit = rates[0] if self._default_rate is None else self._default_rate
        if not unit and any(rates):
            raise OutOfRangeError(
                "PolicyLR: expected a first group with a rate > 0, because the others "
                f"keep their ratio to it, got {rates}; set the rate of the first group."
            )
        return [rate / unit if rate != unit else 1.0 for rate in rates]

    def __repr__(self) -> str:
        """Show the policy, its arguments, the step and the rate of every group."""
        policy, arguments = self._policy, ""
        while isinstance(policy, functools.partial):
            named = "".join(f", {k}={v!r}" for k, v in policy.keywords.items())
            policy, arguments = policy.func, named + arguments
        name = getattr(policy, "__name__", type(policy).__name__)
        rates = ", ".join(f"{rate:.6g}" for rate in self.get_lr())
        return f"PolicyLR({name}{arguments}; step {self.last_epoch}, rates {rates})"

    def get_lr(self) -> list[float]:
        """Return the rate of every group at the step that ``last_epoch`` counts."""
        rate = self._rate(self.last_epoch)
        return [rate * ratio for ratio in self.ratios]

    def get_last_lr(self) -> list[float]:
        """Return the rate of every group at the step that ``last_epoch`` counts."""
        return self.get_lr()

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state, without the policy."""
        return {name: getattr(self, name) for name in SAVED}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state from ``state_dict``, and write the rate of its step.

        So a run goes on at the right rate, in whichever order optimizer and scheduler
        are loaded. A scheduler of a ``SequentialLR`` that has not begun writes nothing.

        Raises:
            ValueError: this is no state of a ``PolicyLR``, or one of another number of
                groups; nothing is changed.
        """
        check_state(state_dict, len(self.optimizer.param_groups))
        step = state_dict["last_epoch"]
        rate = self._rate(step) if step >= 0 else None
        self.__dict__.pop("ratios", None)
        self._equal_groups = 0
        self.__dict__.update(state_dict)
        if rate is not None:
            self._write_each(rate)

    def _write_each(self, rate: float) -> None:
        """Write the rate of each group; remember whether all groups have the same."""
        groups, ratios = self.optimizer.param_groups, self.ratios
        if len(groups) != len(ratios):
            raise OutOfRangeError(
                f"PolicyLR.step: expected the {len(ratios)} parameter groups that the "
                f"optimizer had, got {len(groups)}; make the scheduler after "
                "add_param_group."
            )
        self._equal_groups = len(ratios) if set(ratios) == {1.0} else 0
        for group, ratio in zip(groups, ratios, strict=True):
            write(group, rate * ratio)

    def _rate(self, step: int) -> float:
        """Return the policy's rate; raise unless it is a finite number >= 0."""
        rate = self._policy(step)
        fine, expected = 0 <= number_of(rate) < math.inf, "a finite rate >= 0 from it"
        require("PolicyLR", "policy", rate, fine, expected, "return a number")
        return rate

    def _look_ahead(self, step: int) -> float:
        """Compute the block of rates that contains ``step``, and return its rate."""
        policy: Any = self._policy
        arguments: dict[str, Any] = {}
        while isinstance(policy, functools.partial) and not policy.args:
            arguments = {**policy.keywords, **arguments}
            policy = policy.func
        if policy not in policies.POLICIES.values():
            return self._rate(step)
        start = step - step % BLOCK
        steps = np.arange(start, start + BLOCK)
        try:
            rates = policy(steps, **arguments)
        except OutOfRangeError:  # Unsorted boundaries, for some of these steps.
            return self._rate(step)
        is_array = isinstance(rates, np.ndarray)
        known = rates.tolist() if is_array else [float(rates)] * BLOCK
        self._ahead = dict(zip(steps.tolist(), known, strict=True))
        return self._ahead[step]


def check_state(state: Any, groups: int) -> None:
    """Raise unless this is the state of a ``PolicyLR`` for ``groups`` groups."""
    fine = isinstance(state, Mapping) and set(state) == set(SAVED)
    if fine:
        counts = [state[name] for name in SAVED if name != "base_lrs"]
        rates = state["base_lrs"]
        fine = (
            all(type(count) is int for count in counts)
            and isinstance(rates, list | tuple)
            and len(rates) == groups
            and all(0 <= number_of(rate) < math.inf for rate in rates)
        )
    if not fine:
        raise UnsupportedError(
            f"PolicyLR: state: expected {', '.join(SAVED)} of a scheduler of {groups} "
            f"parameter groups, got {state!r}; load what its state_dict() returned."
        )


def write(group: dict[str, Any], rate: float) -> None:
    """Write a rate into a group; if the rate is a tensor, write it in place."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
