"""Gradients of masters before the step, from either way to unscale."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.interface import GATE_OP
from lockstep.messages.base.pairs import as_pairs
from lockstep.messages.masters import refusals
from lockstep.messages.scaling.refusals import APPLIED_AGAIN
from lockstep.pytorch.base.gradients import (
    Pairs,
    check_gradient,
    dtype_name,
    listed,
    named_parameters,
)
from lockstep.pytorch.masters.buffers import add_penalty
from lockstep.pytorch.masters.copies import MasterCopies, require_masters
from lockstep.pytorch.masters.gradients import (
    MasterGradients,
    fill_buffers,
    in_float32,
)
from lockstep.pytorch.masters.regularizer import (
    Regularizer,
    penalty_gradient,
    registered,
)
from lockstep.pytorch.masters.scale import AutomaticScale
from lockstep.pytorch.scaling.gradients.division import scale_reciprocal
from lockstep.pytorch.scaling.gradients.unscaled import Source, Unscaled
from lockstep.pytorch.scaling.scaled_step import ScaledStep
from lockstep.pytorch.scaling.skipping import SkippingWrapper
from lockstep.pytorch.tensors import foreach

__all__ = ["MasterUnscaling"]

APPLIED = "_lockstep_applied"
"""Attribute of a gradient: its version when a step applied a copy of it."""


class MasterUnscaling(SkippingWrapper):
    """A wrapper whose gradients belong to masters and not to the model's weights.

    Attributes:
        copies: the masters.
        regularizers: weight -> the function that returns its penalty.
    """

    copies: MasterCopies
    regularizers: dict[Tensor, Regularizer]

    @property
    def trains_masters(self) -> bool:
        """Whether any parameter has a master. Outer wrappers read this."""
        return bool(self.copies.masters)

    def trains_master(self, parameter: Tensor) -> bool:
        """Whether a parameter has a master, or is one."""
        masters = self.copies.masters
        return parameter in masters or any(parameter is m for m in masters.values())

    def master(self, parameter: Tensor) -> Tensor:
        """Return the master of a parameter, or the parameter if it has none."""
        return self.copies.of(parameter)

    def _scaled(self, loss: Tensor) -> tuple[Tensor, Any]:
        """Return loss x scale, and the scale; under strict in the dtype of the loss."""
        if loss.itemsize >= 4 or not self._quirks.masters_half_loss:
            return super()._scaled(loss)
        if isinstance(self.scale_object, AutomaticScale):
            raise refusals.HALF_LOSS.error(dtype=dtype_name(loss))
        scale = self.scale_object.value()
        return loss * scale, scale

    def compute_gradients(
        self,
        loss: Tensor | Callable[[], Tensor],
        var_list: Iterable[Tensor] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Tensor | float | None = None,
    ) -> Pairs:
        """Return unscaled float32 gradients with the masters: see the base class.

        ``var_list`` holds the model's parameters.
        """
        if self._quirks.masters_scale_type:
            self.scale_object.value()
        weights = self.copies.weights(
            named_parameters(self)
            if var_list is None
            else listed(var_list, self.get_name())
        )
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops
        return super().compute_gradients(loss, weights, *options, grad_loss)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Take one ``step()`` with these gradients: see the base class.

        The pairs contain masters, or half-precision parameters with gradients of the
        same dtype.
        """
        # ``id`` is used because the hash of a tensor is slow.
        if weights := set(map(id, self.copies.masters)):
            grads_and_vars = [
                (self._widened(g, v), self.master(v)) if id(v) in weights else (g, v)
                for g, v in as_pairs(grads_and_vars, self.get_name())
            ]
        super().apply_gradients(grads_and_vars, global_step, name)

    def _widened(self, gradient: Any, weight: Tensor) -> Tensor | None:
        """Return a given gradient of a half-precision weight in float32.

        Raise for one of another dtype, because the conversion would hide the mistake.
        """
        fits = isinstance(gradient, Tensor) and gradient.dtype in (
            weight.dtype,
            torch.float32,
        )
        if not (gradient is None or fits):
            name = named_parameters(self)[self.master(weight)]
            check_gradient(gradient, weight, name, self.get_name())
        return in_float32(gradient)

    @torch.no_grad()
    def _unscaled_pairs(self, pairs: Pairs) -> Pairs:
        """Return pairs of an unscaled float32 gradient and a master."""
        penalties = self._regularizers()
        flushes = self._quirks.multitask_subnormals
        fills = self._for_step and not (penalties or flushes)
        flats = self.copies.buffers() if fills else []
        if not flats:
            return super()._unscaled_pairs(self._with_masters(pairs, penalties))
        views = fill_buffers(flats, pairs)
        factor = scale_reciprocal(self._pending)
        for flat in flats:
            foreach.scale_in_place(flat.pieces, factor)
        others = [pair for pair in pairs if id(pair[1]) not in views]
        rest = iter(super()._unscaled_pairs(self._with_masters(others, {})))
        return [views.get(id(weight)) or next(rest) for _, weight in pairs]

    def _with_masters(
        self, pairs: Pairs, penalties: Mapping[Tensor, Regularizer]
    ) -> Pairs:
        """Return pairs of a float32 gradient, with its penalty, and a master."""
        if not self.copies.masters:
            return pairs
        wide = []
        for gradient, weight in pairs:
            master = self.copies.masters.get(weight)
            if master is None:
                wide.append((gradient, weight))
                continue
            if gradient is None and self._quirks.masters_absent:
                raise refusals.ABSENT_HALF.error(name=named_parameters(self)[master])
            gradient = in_float32(gradient)
            if penalties and weight in penalties:
                penalty = penalty_gradient(penalties[weight], master)
                gradient = add_penalty(gradient, penalty * self._pending)
            wide.append((gradient, master))
        return wide

    def _model_parameters(self) -> list[Tensor]:
        """Return the weights, because ``backward`` gives gradients to them."""
        return self.copies.weights(self.master_params())

    def _unscale(self, held: float | Tensor) -> Unscaled:
        """Copy the gradients to the masters and divide the copies."""
        trained = list(self.master_params())
        require_masters(self, trained)
        gradients = MasterGradients(trained, self.copies.buffers())
        try:
            self._complete(gradients, held)
            look = self._divide(gradients.present, held, False, gradients.pieces)
        except BaseException:
            gradients.release()
            raise
        return self._unscaled(look, gradients)

    def _unscaled(self, look: ScaledStep, gradients: MasterGradients) -> Unscaled:
        """Return the divided gradients and their check, for the next step."""
        sources = [Source.of(weight) for weight in self.copies.masters]
        return Unscaled(look, gradients.borrowed, sources)

    def _divided(
        self, step: ScaledStep | None, gradients: MasterGradients
    ) -> Unscaled | None:
        """Return the gradients that a failed step divided, for the next step.

        None if the step divided only copies. These are removed from the masters then.
        """
        if not self._borrowed and step is not None and step.divided is not False:
            copies = set(map(id, gradients.borrowed))
            if not all(id(p) in copies for p in step.parameters):
                return self._unscaled(step, gradients)
        gradients.release()
        return None

    def _first_gradient(self) -> tuple[Any, Any]:
        """Return a half-precision weight and its gradient; None if none has one."""
        for weight in self.copies.masters:
            if weight.grad is not None:
                return weight, weight.grad
        return None, None

    def _mark_applied(self) -> None:
        """Mark gradients that a step applied and that still hold the scale."""
        _, gradient = self._first_gradient()
        if gradient is not None:
            setattr(gradient, APPLIED, gradient._version)

    def _refuse_applied(self) -> None:
        """Raise for scaled gradients that the last step has applied already."""
        weight, gradient = self._first_gradient()
        if gradient is None or getattr(gradient, APPLIED, None) != gradient._version:
            return
        name = named_parameters(self)[self.master(weight)]
        raise APPLIED_AGAIN.error(owner=self.owner, name=name)

    def _complete(self, gradients: MasterGradients, held: float | Tensor) -> None:
        """Add the penalties' gradients; find the largest magnitude if it is needed."""
        gradients.penalize(self._regularizers(), self.copies.masters, held)
        self._find_largest(gradients, held)

    def _divides_as_it_updates(self, clips: bool) -> bool:
        """Whether the update can unscale and clip: see the base class."""
        scale = self.chosen_scale
        # Such a scale depends on the largest clipped gradient.
        if clips and isinstance(scale, AutomaticScale) and scale.needs_amax:
            return False
        return super()._divides_as_it_updates(clips)

    def _find_largest(self, gradients: MasterGradients, held: float | Tensor) -> None:
        """Pass the largest unscaled magnitude to a scale that depends on it."""
        scale = self.chosen_scale
        if isinstance(scale, AutomaticScale) and scale.needs_amax:
            least = -math.inf if self._quirks.masters_static_scale else 0.0
            largest = np.float32(gradients.largest(least))
            with np.errstate(all="ignore"):
                scale.amax = float(largest * (np.float32(1) / np.float32(held)))

    def _require_own_unchanged(self) -> None:
        """Raise if the model's gradients were changed after ``unscale_``."""
        unscaled = self._unscaled_by_hand
        changed = [s for s in unscaled.sources if s.changed] if unscaled else []
        if changed:
            self._refuse_after_failure()
            names = named_parameters(self)
            raise refusals.OWN_GRADIENT_CHANGED.error(
                name=names[self.master(changed[0].weight)]
            )

    def _regularizers(self) -> dict[Tensor, Regularizer]:
        """Return weight -> regularizer, with those registered since the last step.

        A frozen weight has no penalty.
        """
        self.regularizers.update(registered(self.copies.masters))
        return {w: r for w, r in self.regularizers.items() if w.requires_grad}
