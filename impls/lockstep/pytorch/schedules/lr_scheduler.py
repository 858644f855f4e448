"""A PyTorch learning-rate scheduler for the policies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep.checks import with_full_name
from lockstep.errors import warn_user
from lockstep.messages.schedules import lr_policies as specs
from lockstep.messages.schedules import lr_schedules as words
from lockstep.messages.schedules import refusals
from lockstep.messages.step.arguments import check_rate_function
from lockstep.pytorch.schedules import lr_policies
from lockstep.quirks import quirks_of

__all__ = ["PolicyLR"]

BLOCK = 1024
"""The number of rates that are computed at a time."""
KEPT = ("last_epoch", "base_lrs", "_step_count")
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
        strict: for a name: use the original's rule.
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
        *,
        strict: bool = False,
        **arguments: Any,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise refusals.NOT_SCHEDULABLE.error(got=type(optimizer).__name__)
        self._unit: float | None = None
        if isinstance(policy, str):
            spec = specs.find(policy)
            arguments = with_full_name("PolicyLR", arguments)
            rates = initial_rates(optimizer)
            if "learning_rate" in arguments:
                self._unit = words.default_rate(optimizer.defaults.get("lr"), rates)
            bound = spec.bind({"learning_rate": rates[0], **arguments})
            function = getattr(lr_policies, policy)
            policy = functools.partial(function, strict=strict, **bound)
        elif not callable(policy):
            raise refusals.NOT_A_POLICY.error(got=policy)
        elif arguments:
            raise refusals.ARGUMENTS_WITHOUT_NAME.error(got=", ".join(arguments))
        else:
            check_rate_function("policy", policy, "PolicyLR")
        self._policy, self._strict = policy, strict
        self._rate(0)
        self._ahead: dict[int, float] = {}
        self._equal = 0
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
            warn_user(words.RATE_SKIPPED)
        step = self.last_epoch + 1 if epoch is None else self._checked(epoch)
        try:
            rate = self._ahead[step]
        except KeyError:
            rate = self._look_ahead(step)
        groups = self.optimizer.param_groups
        if len(groups) == self._equal:
            for group in groups:
                if type(group["lr"]) is float:
                    group["lr"] = rate
                else:
                    write(group, rate)
        else:
            self._write_each(groups, rate)
        self._step_count, self.last_epoch = count + 1, step

    def _checked(self, epoch: Any) -> int:
        """Return ``epoch`` as a number; raise unless it is a step."""
        unchecked = quirks_of(self._strict).arguments_unchecked
        specs.check_step("PolicyLR.step", epoch, unchecked, arrays=False)
        return int(epoch)

    @functools.cached_property
    def ratios(self) -> list[float]:
        """The initial rate of each group, divided by the rate that the policy replaces.

        This is i_k / i_0, or i_k / default rate.
        """
        rates = [float(rate) for rate in self.base_lrs]
        unit = rates[0] if self._unit is None else self._unit
        if not unit and any(rates):
            raise refusals.NO_RATIO.error(rates=rates)
        return [rate / unit if rate != unit else 1.0 for rate in rates]

    def __repr__(self) -> str:
        """Show the policy, its arguments, the step and the rate of every group."""
        policy, arguments = self._policy, ""
        while isinstance(policy, functools.partial):
            named = {k: v for k, v in policy.keywords.items() if k != "strict"}
            arguments = "".join(f", {k}={v!r}" for k, v in named.items()) + arguments
            policy = policy.func
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
        return {name: getattr(self, name) for name in KEPT}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state from ``state_dict``, and write the rate of its step.

        So a run goes on at the right rate, in whichever order optimizer and scheduler
        are loaded. A scheduler of a ``SequentialLR`` that has not begun writes nothing.

        Raises:
            ValueError: this is no state of a ``PolicyLR``, or one of another number of
                groups; nothing is changed.
        """
        words.check_schedule(state_dict, KEPT, len(self.base_lrs))
        groups, step = self.optimizer.param_groups, state_dict["last_epoch"]
        if len(groups) != len(self.base_lrs):
            then, now = len(self.base_lrs), len(groups)
            raise refusals.GROUPS_CHANGED.error(then=then, now=now)
        rate = self._rate(step) if step >= 0 else None
        self.__dict__.pop("ratios", None)
        self._equal = 0
        self.__dict__.update(state_dict)
        if rate is not None:
            self._write_each(groups, rate)

    def _write_each(self, groups: Sequence[dict[str, Any]], rate: float) -> None:
        """Write the rate of each group; remember whether all groups have the same."""
        ratios = self.ratios
        if len(groups) != len(ratios):
            raise refusals.GROUPS_CHANGED.error(then=len(ratios), now=len(groups))
        self._equal = len(ratios) if set(ratios) == {1.0} else 0
        for group, ratio in zip(groups, ratios, strict=True):
            write(group, rate * ratio)

    def _rate(self, step: int) -> float:
        """Return the policy's rate after checking it; strict does not check."""
        rate = self._policy(step)
        if not quirks_of(self._strict).arguments_unchecked:
            words.check_policy_rate(rate)
        return rate

    def _look_ahead(self, step: int) -> float:
        """Compute the block of rates that contains ``step``, and return its rate."""
        unchecked = vectorised(self._policy)
        if unchecked is None:
            return self._rate(step)
        start = step - step % BLOCK
        steps = torch.arange(start, start + BLOCK, device="cpu")
        rates = unchecked(steps)
        is_tensor = isinstance(rates, Tensor)
        known = rates.expand(BLOCK).tolist() if is_tensor else [rates] * BLOCK
        self._ahead = dict(zip(steps.tolist(), known, strict=True))
        return self._ahead[step]


def initial_rates(optimizer: Optimizer) -> list[float]:
    """Return each group's rate before any scheduler changed it."""
    groups = optimizer.param_groups
    return [float(group.get("initial_lr", group["lr"])) for group in groups]


def write(group: dict[str, Any], rate: float) -> None:
    """Write a rate into a group; if the rate is a tensor, write it in place."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def vectorised(policy: Callable[[int], float]) -> Callable[[Tensor], Any] | None:
    """Return one of our policies without its checks; None for any other callable."""
    keywords: dict[str, Any] = {}
    while isinstance(policy, functools.partial) and not policy.args:
        keywords = {**policy.keywords, **keywords}
        policy = policy.func
    if "lr" in keywords:
        keywords = with_full_name("PolicyLR", keywords)
    ours = getattr(lr_policies, getattr(policy, "__name__", ""), None)
    if policy is not ours or not specs.rises(keywords.get("boundaries", ())):
        return None
    return functools.partial(ours.__wrapped__, **keywords)
