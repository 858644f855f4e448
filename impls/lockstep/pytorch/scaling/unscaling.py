"""Gradients that are unscaled by hand, between ``backward`` and ``step``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.not_traced import untraced
from lockstep.pytorch.base.wrapper import OptimizerWrapper
from lockstep.pytorch.scaling.fused import own_gradients
from lockstep.pytorch.scaling.loss_scale import LossScale
from lockstep.pytorch.scaling.unscale import (
    Look,
    divide,
    fit,
    look,
    look_on_device,
    unscaled,
)
from lockstep.pytorch.tensors.overlap import share_elements
from lockstep.quirks import Quirks

__all__ = ["Source", "Unscaled", "UnscalingWrapper"]


class Source(NamedTuple):
    """The model's own gradient of a weight, and its version when it was read."""

    weight: Tensor
    gradient: Tensor | None
    version: int

    @classmethod
    def of(cls, weight: Tensor) -> Source:
        """Return what the gradient of a weight is now."""
        gradient = weight.grad
        return cls(weight, gradient, -1 if gradient is None else gradient._version)

    @property
    def changed(self) -> bool:
        """Whether the gradient was replaced or written into since."""
        now = Source.of(self.weight)
        return now.gradient is not self.gradient or now.version != self.version


class Unscaled(NamedTuple):
    """What ``unscale_`` did, remembered until the step.

    A gradient that is not finite then skips the step, also if it has been clipped to a
    finite one since.

    Attributes:
        parameters: those that had a gradient.
        finite: whether all gradients were finite.
        fits: [len(parameters)], whether each gradient was; None: all were.
        masters: those whose ``.grad`` lasts until the step only.
        sources: the gradients that were copied to them.
    """

    parameters: list[Tensor]
    finite: bool | Tensor
    fits: Tensor | None
    masters: Sequence[Tensor] = ()
    sources: Sequence[Source] = ()

    def combine(self, later: Look) -> Look:
        """Return a later look that is finite only if the first one was, too."""
        return later._replace(finite=later.finite & self.finite)

    def flags(
        self, parameters: list[Tensor], fits: Tensor | None
    ) -> tuple[list[Tensor], Tensor | None]:
        """Return parameters with their flags: the first ones if any was not finite.

        Clipping to a norm that is NaN makes every gradient NaN. Nothing waits for a
        GPU.
        """
        if isinstance(self.finite, bool) or self.finite.is_cpu:
            return (parameters, fits) if self.finite else (self.parameters, self.fits)
        same = list(map(id, parameters)) == list(map(id, self.parameters))
        if not same or fits is None or self.fits is None:
            return self.parameters, self.fits
        return parameters, torch.where(self.finite, fits, self.fits)

    def release(self) -> None:
        """Take back the gradients of masters."""
        for master in self.masters:
            master.grad = None


@torch.no_grad()
def unscale_by_hand(
    parameters: list[Tensor],
    pieces: Sequence[Tensor],
    scale: float | Tensor,
    may_be_below_one: bool,
    flush: bool = False,
) -> Unscaled:
    """Divide gradients by the scale, in place, and note which were not finite.

    Args:
        parameters: those that have a gradient.
        pieces: the same gradients, perhaps in fewer tensors.
        scale: what they hold; a tensor: nothing waits for a GPU.
        may_be_below_one: whether such a tensor may be below 1.
        flush: subnormals are zero, as where ``compute_gradients`` divides.
    """
    if not parameters:
        return Unscaled(parameters, True, None)
    gradients = [p.grad for p in parameters]
    if isinstance(scale, Tensor):
        found = look_on_device(gradients, scale, None, may_be_below_one)
        fits = found.fits
    else:
        found = look(pieces, scale, None)
        fits = None if found.fits is None else fit(gradients, scale)
    if share_elements(pieces):
        pieces = gradients = own_gradients(parameters)
    if flush or isinstance(scale, Tensor):
        products = unscaled(gradients, scale, flush)
        for gradient, product in zip(gradients, products, strict=True):
            gradient.copy_(product)
    elif scale != 1:
        divide(pieces, scale)
    return Unscaled(parameters, found.finite, fits)


class UnscalingWrapper(OptimizerWrapper):
    """A wrapper whose gradients can be unscaled before its step.

    ``owner``: the public name of the wrapper, for its sentences.
    """

    owner: str
    capturable: bool
    _quirks: Quirks
    scale_object: LossScale

    _pending: Any = None
    _unscaled_by_hand: Unscaled | None = None

    @untraced
    def unscale_(self) -> None:
        """Divide the gradients by the scale now, in place, for you to look at or clip.

        Each gradient becomes g x fl32(1 / s). Once before each step, after the last
        ``backward``; the step then does not divide again, and refuses a gradient that
        was not there. What to clip is in :meth:`master_params`. A gradient that is not
        finite here skips the step, whatever becomes of it until then. ``zero_grad``
        takes it back. Costs a read of the gradients, and one host sync unless
        ``capturable``.

        Raises:
            RuntimeError: the gradients of this step are unscaled already.
        """
        if self._unscaled_by_hand is not None:
            raise refusals.UNSCALED_TWICE.error(
                owner=f"{self.owner}.unscale_", remedy=words.CLEAR
            )
        self._refuse_sharded()
        pending, self._pending = self._pending, None
        self._unscaled_by_hand = self._unscale(1.0 if pending is None else pending)

    @property
    def unscaled_by_hand(self) -> Unscaled | None:
        """What ``unscale_`` found for the step to come; None if it was not called."""
        return self._unscaled_by_hand

    def _unscale(self, held: float | Tensor) -> Unscaled:
        """Divide the gradients by what they hold."""
        seen = [p for p in self.master_params() if p.grad is not None]
        flush = self._quirks.multitask_subnormals
        return self._divide(seen, [p.grad for p in seen], held, flush)

    def _divide(
        self,
        seen: list[Tensor],
        pieces: Sequence[Tensor],
        held: float | Tensor,
        flush: bool,
    ) -> Unscaled:
        """Divide the gradients of parameters; ``pieces``: the same gradients."""
        if self.capturable and seen and not isinstance(held, Tensor):
            held = torch.full((), held, device=seen[0].device)
        shrinks = self.scale_object.may_be_below_one()
        return unscale_by_hand(seen, pieces, held, shrinks, flush)

    def master_params(self) -> Iterator[Tensor]:
        """Yield what the wrapped optimizer updates: the masters where there are any.

        Between ``unscale_`` and ``step`` they have the unscaled gradients, as for
        ``torch.nn.utils.clip_grad_norm_(optimizer.master_params(), 1.0)``.
        """
        for group in self.param_groups:
            yield from group["params"]

    def _model_parameters(self) -> Iterable[Tensor]:
        """Return what ``backward`` gives gradients to."""
        return self.master_params()

    def _refuse_later(self, seen: Iterable[Tensor]) -> None:
        """Raise for a gradient that came after ``unscale_``: it may be scaled."""
        if self._unscaled_by_hand is None:
            return
        known = set(map(id, self._unscaled_by_hand.parameters))
        for parameter in seen:
            if id(parameter) not in known:
                name = named_parameters(self)[parameter]
                raise refusals.LATER_GRADIENT.error(owner=self.owner, name=name)

    def _forget_unscaled(self) -> None:
        """Leave ``unscale_`` behind; masters lose the gradients they had from it."""
        if self._unscaled_by_hand is not None:
            self._unscaled_by_hand.release()
            self._unscaled_by_hand = None

    def _refuse_mixture(self) -> None:
        """Raise where gradients of a scaled loss would be added to unscaled ones."""
        if self._unscaled_by_hand is not None:
            if any(p.grad is not None for p in self._model_parameters()):
                raise refusals.SCALED_AGAIN.error(owner=self.owner)
            self._forget_unscaled()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, as the wrapped optimizer does it."""
        self._forget_unscaled()
        super().zero_grad(set_to_none)
