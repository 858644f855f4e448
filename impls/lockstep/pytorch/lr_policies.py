"""The learning-rate policies, and the scheduler that writes their rates into groups.

For an integer step a policy returns a Python float with a float32 value, for an integer
tensor a tensor on the same device. Reading a step on a GPU waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep import policies
from lockstep.checks import number_of, require, with_full_name
from lockstep.errors import OutOfRangeError, UnsupportedError, warn_user
from lockstep.policies import cosine_decay as cosine_decay
from lockstep.policies import exp_decay as exp_decay
from lockstep.policies import fixed_lr as fixed_lr
from lockstep.policies import inv_poly_decay as inv_poly_decay
from lockstep.policies import piecewise_constant as piecewise_constant
from lockstep.policies import poly_decay as poly_decay
from lockstep.policies import transformer_policy as transformer_policy

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
        arguments: the policy's arguments; ``lr`` is ``learning_rate``.

    Raises:
        UnknownNameError: no policy or parameter has this name; the message suggests the
            nearest.
        OutOfRangeError: an argument is missing or out of range; a callable returns no
            valid rate, now or at a later step; or ``learning_rate`` is given, the
            groups have several rates, and the optimizer has no default rate.
        TypeError: a callable that does not accept the step or the arguments.

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
        groups = optimizer.param_groups
        rates = [float(group.get("initial_lr", group["lr"])) for group in groups]
        self._replaced: float | None = None
        """The rate that the policy's replaces; None for that of the first group."""
        if not callable(policy):
            arguments = with_full_name("PolicyLR", arguments)
            default = optimizer.defaults.get("lr")
            if "learning_rate" in arguments and 0 < number_of(default) < math.inf:
                self._replaced = float(default)
            elif "learning_rate" in arguments and len(set(rates)) > 1:
                raise OutOfRangeError(
                    "PolicyLR: learning_rate: expected a default rate > 0 of the "
                    f"optimizer, because its groups differ, got {default!r}; leave "
                    "learning_rate out, and it is that of the first group."
                )
            arguments = policies.bind(policy, {"learning_rate": rates[0], **arguments})
            policy = policies.POLICIES[policy]
        self._policy = partial(policy, **arguments)
        self._ahead: dict[int, float] = {}
        self._set_ratios(rates)
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: int | None = None) -> None:
        """Count one step, or go to step ``epoch``, and write the rate of every group.

        Steps may come in any order, because no rate depends on another. For our own
        policies, a block of rates is computed at a time.

        Raises:
            ValueError: ``epoch`` is no step, a callable returns no valid rate, or the
                optimizer has other groups than before. Then no step is counted.
        """
        count = self._step_count
        if count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warn_user(
                "PolicyLR.step: expected optimizer.step() before it, got none, so that "
                "the first rate was never used; call scheduler.step() after "
                "optimizer.step()."
            )
        step = self.last_epoch + 1 if epoch is None else epoch
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

    def get_lr(self) -> list[float]:
        """Return the rate of every group at the step that ``last_epoch`` counts."""
        rate = self._rate(self.last_epoch)
        return [rate * ratio for ratio in self._ratios]

    get_last_lr = get_lr

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
        groups = len(self.optimizer.param_groups)
        if set(state_dict) != set(SAVED) or len(state_dict["base_lrs"]) != groups:
            raise UnsupportedError(
                f"PolicyLR: state: expected {', '.join(SAVED)} of a scheduler of "
                f"{groups} parameter groups, got {state_dict!r}; load what its "
                "state_dict() returned."
            )
        self.__dict__.update(state_dict)
        self._set_ratios(self.base_lrs)
        if self.last_epoch >= 0:
            self._write_each(self._rate(self.last_epoch))

    def _set_ratios(self, rates: Iterable[Any]) -> None:
        """Set each group's initial rate over the rate that the policy's replaces."""
        rates = [float(rate) for rate in rates]
        unit = rates[0] if self._replaced is None else self._replaced
        self._ratios = [1.0 if rate == unit else rate / unit for rate in rates]
        self._equal_groups = len(rates) if set(self._ratios) == {1.0} else 0

    def _write_each(self, rate: float) -> None:
        groups, ratios = self.optimizer.param_groups, self._ratios
        if len(groups) != len(ratios):
            raise OutOfRangeError(
                f"PolicyLR: expected the {len(ratios)} parameter groups that the "
                f"optimizer had, got {len(groups)}; make the scheduler after "
                "add_param_group."
            )
        for group, ratio in zip(groups, ratios, strict=True):
            write(group, rate * ratio)

    def _rate(self, step: int) -> float:
        """Return the policy's rate; raise unless it is a finite number >= 0."""
        rate = self._policy(step)
        fine, expected = 0 <= number_of(rate) < math.inf, "a finite rate >= 0 from it"
        require("PolicyLR", "policy", rate, fine, expected, "return a number")
        return rate

    def _look_ahead(self, step: int) -> float:
        """Return the rate of a step; for our own policies, compute those of a block."""
        if self._policy.func in policies.POLICIES.values():
            start = step - step % BLOCK
            steps = np.arange(start, start + BLOCK)
            try:
                rates = np.broadcast_to(self._policy(steps), BLOCK).tolist()
            except OutOfRangeError:  # Unsorted boundaries, for some of these steps.
                return self._rate(step)
            self._ahead = dict(zip(steps.tolist(), map(float, rates), strict=True))
            return self._ahead[step]
        return self._rate(step)


def write(group: dict[str, Any], rate: float) -> None:
    """Write a rate into a group; if the rate is a tensor, write it in place."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
