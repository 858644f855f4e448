"""The gradients of a scaled loss before the step, with ``unscale_``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from lockstep.interface import GATE_OP
from lockstep.messages import pytorch as torch_messages
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.pytorch.base.fused_step import has_hooks
from lockstep.pytorch.base.gradients import (
    Pairs,
    listed,
    named_parameters,
)
from lockstep.pytorch.base.not_traced import untraced
from lockstep.pytorch.base.wrapper import OptimizerWrapper
from lockstep.pytorch.gradients import evaluate
from lockstep.pytorch.scaling.capturable import CapturableStep
from lockstep.pytorch.scaling.gradients.division import (
    replace_unscaled,
    unscale_in_place,
)
from lockstep.pytorch.scaling.gradients.unscaled import Unscaled
from lockstep.pytorch.scaling.loss_scale import LossScale
from lockstep.pytorch.scaling.scaled_step import ScaledStep
from lockstep.quirks import Quirks

__all__ = ["ScaledGradients"]


class ScaledGradients(OptimizerWrapper):
    """A wrapper that scales the loss and unscales its gradients before the step.

    ``owner``: the public name of the wrapper, for its messages.
    """

    owner: str
    capturable: bool
    clip_norm: float | None
    _quirks: Quirks
    scale_object: LossScale

    _borrowed = False
    _pending: Any = None
    _failed = False
    _unscaled_by_hand: Unscaled | None = None
    _finite: Sequence[Tensor] = ()

    @untraced
    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return loss x scale; a loss in half precision becomes float32.

        The next ``step``, ``apply_gradients`` or ``compute_gradients`` divides the
        gradients by the scale, once. A loss without a graph, as under ``no_grad``, has
        no gradients, so nothing is divided.

        Raises:
            TypeError: the loss is no tensor.
            RuntimeError: there are gradients that ``unscale_`` has divided, and the
                scaled gradients of this loss would be added to them.
        """
        if not isinstance(loss, Tensor):
            raise torch_messages.NOT_DIFFERENTIABLE.error(
                owner=self.owner, got=type(loss).__name__
            )
        product, scale = self._scaled(loss)
        if product.requires_grad:
            self._refuse_mixture()
            self._pending, self._failed = scale, False
        return product

    def _scaled(self, loss: Tensor) -> tuple[Tensor, Any]:
        """Return loss x scale, and the scale."""
        scale: Any = self.scale_object
        scale = scale.on_device(self._device()) if self.capturable else scale.value()
        return (loss.float() if loss.itemsize < 4 else loss) * scale, scale

    def compute_gradients(
        self,
        loss: Tensor | Callable[[], Tensor],
        var_list: Iterable[Tensor] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Tensor | float | None = None,
    ) -> Pairs:
        """Differentiate loss x scale and unscale: see the base class.

        Raises:
            TypeError: under ``strict``, also for a loss that the original cannot scale.
        """
        before = self._pending
        try:
            if callable(loss):
                self._pending = None
                loss = evaluate(loss)
            variables = None if var_list is None else listed(var_list, self.get_name())
            self._check(loss, variables)
            if isinstance(loss, Tensor) and self._pending is None:
                loss, self._pending = self._scaled(loss)
            options = gate_gradients, aggregation_method, colocate_gradients_with_ops
            pairs = super().compute_gradients(loss, variables, *options, grad_loss)
            pairs = self._unscaled_pairs(pairs)
        except BaseException:
            self._pending = before
            raise
        self._pending = None
        return pairs

    def _unscaled_pairs(self, pairs: Pairs) -> Pairs:
        """Return pairs with gradients divided by the scale, and empty ``pairs``."""
        gradients, parameters = [g for g, _ in pairs], [p for _, p in pairs]
        pairs.clear()  # So each gradient is freed once its product exists.
        flush = self._quirks.multitask_subnormals
        if self._for_step and not flush:
            unscale_in_place(gradients, self._pending)
        else:
            replace_unscaled(gradients, self._pending, flush)
        return list(zip(gradients, parameters, strict=True))

    def _check(self, loss: Any, variables: Iterable[Any] | None) -> None:
        """Raise for a loss, or a parameter, that cannot be scaled."""

    def _lend(self, is_lent: bool) -> None:
        """Mark the gradients of the next step as those of a caller, or no longer."""
        super()._lend(is_lent)
        self._borrowed = is_lent
        if not is_lent:
            self._finite = ()

    def _note_finite(self, gradients: Sequence[Tensor]) -> None:
        """Let the next ``apply_gradients`` omit the finite check of these gradients.

        These are all gradients of the step, and they may be overwritten.
        """
        self._finite = gradients

    def _are_known(self, parameters: Iterable[Tensor]) -> bool:
        """Whether the gradients are those of ``_note_finite``, without any hook."""
        if has_hooks(self):
            return False
        return set(map(id, self._finite)) == {id(p.grad) for p in parameters}

    @untraced
    def unscale_(self) -> None:
        """Divide the gradients by the scale now, in place, so that you can clip them.

        Each gradient becomes g x fl32(1 / s). Call it once a step, after the last
        ``backward``. The step then does not divide again, and it raises for gradients
        that were added since. Clip those of :meth:`master_params`. If a gradient is not
        finite here, the step is skipped, whatever you do with the gradient.
        ``zero_grad`` undoes the call. It costs one read of the gradients, and one host
        sync unless ``capturable``.

        After a step that failed it may be called again.

        Raises:
            RuntimeError: the gradients of this step are unscaled already.
        """
        self._refuse_mixed("unscale_")
        if self._unscaled_by_hand is not None:
            if not self._unscaled_by_hand.failed:
                raise refusals.UNSCALED_TWICE.error(
                    owner=f"{self.owner}.unscale_", remedy=words.CLEAR
                )
            self._unscaled_by_hand = self._unscaled_by_hand._replace(failed=False)
            return
        self._refuse_sharded(self.master_params())
        held = self._pending
        self._unscaled_by_hand = self._unscale(1.0 if held is None else held)
        self._pending = None

    @property
    def unscaled_by_hand(self) -> Unscaled | None:
        """The result of ``unscale_`` for the next step; None if it was not called."""
        return self._unscaled_by_hand

    def _unscale(self, held: float | Tensor) -> Unscaled:
        """Divide the gradients by the scale that they contain."""
        present = [p for p in self.master_params() if p.grad is not None]
        return Unscaled(self._divide(present, held, self._quirks.multitask_subnormals))

    def _divide(
        self,
        parameters: list[Tensor],
        held: float | Tensor,
        flush: bool,
        pieces: Sequence[Tensor] | None = None,
    ) -> ScaledStep:
        """Divide the gradients of parameters in place; return their finite check."""
        if not parameters:
            return ScaledStep(parameters, None)
        step = ScaledStep(parameters, held, pieces)
        if self.capturable:
            shrinks = self.scale_object.may_be_below_one()
            step = CapturableStep(parameters, held, pieces, shrinks)
        try:
            step.look(None)
            step.unscale(flush)
        except BaseException:
            self._survive(step, self._pending, Unscaled(step, mixed=True))
            raise
        step.pieces = ()
        return step

    def _survive(
        self, step: ScaledStep | None, held: Any, divided: Unscaled | None
    ) -> None:
        """Store whether the gradients of a failed step still need to be divided.

        So the step can be taken again, and no gradient is divided twice.

        Args:
            step: the failed step; None if it was not created.
            held: the factor that was in its gradients.
            divided: the gradients, if the model's own were divided; None if only copies
                were.
        """
        by_hand = self._unscaled_by_hand
        if step is not None and step.divided is not False and divided is not None:
            by_hand = by_hand or divided
            mixed = by_hand.mixed or step.divided is None
            self._unscaled_by_hand = by_hand._replace(failed=True, mixed=mixed)
            step.pieces, self._pending = (), None
            return
        if by_hand is not None:
            self._unscaled_by_hand = by_hand._replace(failed=True)
        self._pending, self._failed = held, True

    def master_params(self) -> Iterator[Tensor]:
        """Yield the tensors that the wrapped optimizer updates, masters if there are.

        Between ``unscale_`` and ``step`` they have unscaled gradients, so you can call
        ``torch.nn.utils.clip_grad_norm_(optimizer.master_params(), 1.0)``.
        """
        for group in self.param_groups:
            yield from group["params"]

    def _model_parameters(self) -> Iterable[Tensor]:
        """Return the tensors that ``backward`` gives gradients to."""
        return self.master_params()

    def _refuse_later(self, seen: Iterable[Tensor]) -> None:
        """Raise for a gradient newer than ``unscale_``, because it may be scaled."""
        if self._unscaled_by_hand is None:
            return
        known = set(map(id, self._unscaled_by_hand.look.parameters))
        for parameter in seen:
            if id(parameter) not in known:
                self._refuse_after_failure()
                name = named_parameters(self)[parameter]
                raise refusals.LATER_GRADIENT.error(owner=self.owner, name=name)

    def _refuse_mixed(self, method: str) -> None:
        """Raise if a failed step divided some gradients and left others scaled."""
        if self._unscaled_by_hand is not None and self._unscaled_by_hand.mixed:
            raise refusals.MIXED_GRADIENTS.error(owner=f"{self.owner}.{method}")

    def _refuse_after_failure(self) -> None:
        """Raise if a failed step divided the gradients that were here before."""
        if self._unscaled_by_hand is not None and self._unscaled_by_hand.failed:
            raise refusals.MIXED_GRADIENTS.error(owner=f"{self.owner}.step")

    def _forget_unscaled(self) -> None:
        """Discard the result of ``unscale_`` and the gradients that it gave masters."""
        if self._unscaled_by_hand is not None:
            self._unscaled_by_hand.release()
            self._unscaled_by_hand = None

    def _refuse_mixture(self) -> None:
        """Raise if scaled gradients would be added to unscaled ones."""
        by_hand = self._unscaled_by_hand
        if by_hand is None:
            return
        if all(p.grad is None for p in self._model_parameters()):
            self._forget_unscaled()
        elif not by_hand.failed:
            raise refusals.SCALED_AGAIN.error(owner=self.owner)
        else:
            # They may still be cleared, so the next step checks again.
            self._unscaled_by_hand = by_hand._replace(mixed=True)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, as the wrapped optimizer does it."""
        self._forget_unscaled()
        if self._failed:
            self._pending, self._failed = None, False
        super().zero_grad(set_to_none)
