"""Gradients of masters, unscaled by hand before the step."""

from __future__ import annotations

from torch import Tensor

from lockstep.messages.masters import refusals
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.masters.copies import MasterCopies, require_masters
from lockstep.pytorch.masters.gradients import MasterGradients
from lockstep.pytorch.masters.regularizer import Regularizer, registered
from lockstep.pytorch.masters.step import find_largest
from lockstep.pytorch.scaling.scale_keeper import ScaleKeeper
from lockstep.pytorch.scaling.unscaling import Source, Unscaled

__all__ = ["MasterUnscaling"]


class MasterUnscaling(ScaleKeeper):
    """``unscale_`` of a wrapper whose gradients belong to other tensors.

    Attributes:
        copies: the masters.
        regularizers: weight -> the function of its penalty.
    """

    copies: MasterCopies
    regularizers: dict[Tensor, Regularizer]

    def _model_parameters(self) -> list[Tensor]:
        """Return what ``backward`` gives gradients to: weights, not their masters."""
        return self.copies.weights(self.master_params())

    def _unscale(self, held: float | Tensor) -> Unscaled:
        """Bring the gradients to the masters and divide them there."""
        trained = list(self.master_params())
        require_masters(self, trained)
        gradients = MasterGradients(trained, self.copies.buffers())
        gradients.penalize(self._regularizers(), self.copies.masters, held)
        find_largest(self, gradients, held)
        unscaled = self._divide(gradients.present, gradients.pieces, held, flush=False)
        sources = [Source.of(weight) for weight in self.copies.masters]
        return unscaled._replace(masters=gradients.borrowed, sources=sources)

    def _require_own_unchanged(self) -> None:
        """Raise where the model's own gradients were changed after ``unscale_``."""
        unscaled = self._unscaled_by_hand
        changed = [s for s in unscaled.sources if s.changed] if unscaled else []
        if changed:
            names = named_parameters(self)
            raise refusals.OWN_GRADIENT_CHANGED.error(
                name=names[self.master(changed[0].weight)]
            )

    def _regularizers(self) -> dict[Tensor, Regularizer]:
        """Return the regularizers of weights, those registered by now included.

        A frozen weight has no penalty.
        """
        self.regularizers.update(registered(self.copies.masters))
        return {w: r for w, r in self.regularizers.items() if w.requires_grad}
