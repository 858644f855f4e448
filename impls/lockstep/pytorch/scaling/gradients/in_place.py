"""Scaled gradients that stay in ``.grad`` until the update divides them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from lockstep.pytorch.base.fused_step import has_hooks, path_to_divider
from lockstep.pytorch.base.gradients import gradients_set_to
from lockstep.pytorch.gradients import backward, check_loss, evaluate
from lockstep.pytorch.scaling.scaled_gradients import ScaledGradients

__all__ = ["GradientsInPlace"]


class GradientsInPlace(ScaledGradients):
    """A wrapper whose fused optimizer can unscale and clip while it updates.

    ``optimize_loss`` uses this, because it saves two passes over the gradients.
    """

    _factor_of: Callable[[float], float] | None = None
    """Clips the next step instead of ``clip_norm``, see :meth:`_gradients_in_place`."""

    def _divides_as_it_updates(self, clips: bool) -> bool:
        """Whether the update can unscale and clip, because nothing needs them before.

        Only float32 gradients, because others are rounded after each of the products.
        ``clips``: whether the gradients are to be clipped at all.
        """
        inner = self.inner_optimizer
        looks = self.capturable or self.clip_norm is not None
        if looks or has_hooks(self) or path_to_divider(inner) is None:
            return False
        return all([p.dtype == torch.float32 for p in self.master_params()])

    @contextmanager
    def _gradients_in_place(
        self,
        loss: Callable[[], Tensor],
        weights: Iterable[Tensor],
        factor_of: Callable[[float], float] | None,
    ) -> Iterator[None]:
        """Set ``.grad`` to the gradients of loss x scale, for a ``step`` in the block.

        Afterwards each ``.grad`` is what it was before.

        Args:
            loss: computes the loss.
            weights: the weights to train. All others have no gradient in the block.
            factor_of: global norm of the unscaled gradients -> the factor that clips
                them; None for no clipping.
        """
        before, self._pending = self._pending, None
        everything = list(self._model_parameters())
        try:
            value = evaluate(loss)
            check_loss(value, None, self.get_name())
            if self._pending is None:
                value, self._pending = self._scaled(value)
            with gradients_set_to(everything, [None] * len(everything)):
                backward(value, weights)
                self._forget_unscaled()
                self._factor_of = factor_of
                yield
        except BaseException:
            # What a failed step would divide again is gone with the gradients.
            self._forget_unscaled()
            self._pending = before
            raise
        finally:
            self._factor_of = None
