"""The wrapper that scales the loss and skips steps that are not finite."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep import pipeline, scalers
from lockstep.errors import (
    LossNotCallableError,
    MissingLossScaleError,
    NotScalableError,
    ScaleStalledError,
    UnscaledTwiceError,
    UnsupportedError,
    warn_user,
)
from lockstep.interface import GATE_OP, NO_GRADIENTS, NO_STEP, StepReport
from lockstep.pytorch import foreach, fused, gradients, norms, shards
from lockstep.pytorch.gradients import Pairs, name_in, named_parameters
from lockstep.pytorch.loss_scales import SCALE, AutomaticScale, LossScale, get
from lockstep.pytorch.scaled_step import Step, divide_in_place, inverse, largest_of
from lockstep.pytorch.wrapper import OptimizerWrapper

COUNTS = IN_A_ROW, SKIPPED = "skipped_in_a_row", "skipped_steps"
"""The keys of the counts in ``param_groups[0]``."""


class ScalingWrapper(OptimizerWrapper):
    """A wrapper that scales the loss, and skips steps that are not finite.

    The numbers of the scale are in ``param_groups[0]``. Unlike ``state``, a group is
    never cast to the dtype of a parameter, and distributed checkpoints contain it. They
    are Python numbers; with ``capturable`` they are 0-d tensors that are updated in
    place.
    """

    capturable = False

    _held: Any = None
    """The factor that ``.grad`` still holds; None for no factor."""
    _by_hand: Step | None = None
    """What ``unscale_`` saw of the gradients of the next step."""
    _failed: Sequence[Tensor | None] = ()
    """Gradients of a step that raised, some of which it may have divided."""
    _unscaled: tuple[Tensor, Tensor, int] | None = None
    """A parameter with a gradient, and its version, from before ``scale_loss``."""
    _stepped: Callable[[], Tensor | None] = staticmethod(lambda: None)
    """Return that parameter's gradient of the last step, if it is still there."""
    _knows_scale = False
    """Whether the loss scale was ever asked for, or its absence was warned of."""
    _lent = False
    """Whether the gradients of the next step belong to a caller."""
    _known: Sequence[Tensor] = ()
    """Gradients that ``optimize_loss`` has found finite."""
    _factor_of: Callable[[float], float] | None = None
    """How ``optimize_loss`` clips the next step: global norm -> factor."""
    _took: bool | Tensor = True
    _warned = False
    _seen: Step | StepReport = NO_STEP

    def __init__(
        self,
        opt: Optimizer,
        scale: LossScale,
        clip_norm: float | None,
        at_floor: str,
        floor_patience: int,
    ) -> None:
        owner = type(self).__name__
        scalers.check_options(owner, clip_norm, at_floor, floor_patience)
        for layer in pipeline.layers_of(opt):
            if isinstance(layer, ScalingWrapper):
                raise UnsupportedError(
                    f"{owner}: expected an optimizer whose loss is not scaled yet, got "
                    f"{type(layer).__name__}; let one of the two scale, and give it "
                    "the loss scale."
                )
        if any(group.get("differentiable") for group in opt.param_groups):
            raise UnsupportedError(
                f"{owner}: expected an optimizer that is not differentiable, got "
                f"{type(opt).__name__}; leave differentiable off."
            )
        if scale.keys and "params" in scale.numbers:
            raise UnsupportedError(
                f"{owner}: loss_scale: expected a loss scale of its own, got one that "
                "counts the steps of another optimizer; make one for each."
            )
        super().__init__(opt)
        self.clip_norm, self.at_floor = clip_norm, at_floor
        self.floor_patience, self.chosen_scale = floor_patience, scale
        own = {key: scale.numbers[key] for key in scale.keys}
        self.param_groups[0].update({**own, IN_A_ROW: 0, SKIPPED: 0})
        self.scale_object  # noqa: B018 - now its numbers are in the group.

    @property
    def scale_object(self) -> LossScale:
        """The loss scale; its numbers are those in ``param_groups[0]``."""
        scale, group = self.chosen_scale, self.inner_optimizer.param_groups[0]
        if scale.numbers is group and not self.capturable:
            return scale
        device = self._device() if self.capturable else None
        there = getattr(group.get(IN_A_ROW), "device", None)
        if scale.numbers is not group or there != device:
            if isinstance(scale, AutomaticScale):
                scale.load(group)
            own = {key: scale.numbers[key] for key in scale.keys}
            for key, value in {IN_A_ROW: 0, SKIPPED: 0, **own}.items():
                group[key] = number_on(device, group.get(key, value))
            scale.numbers = group
        return scale

    def _device(self) -> torch.device:
        return next(p.device for group in self.param_groups for p in group["params"])

    def _current(self) -> Any:
        """Return the scale as a number, or with ``capturable`` as a copied tensor."""
        scale = self.scale_object
        if not self.capturable:
            return scale.value()
        return number_on(
            self._device(), scale.numbers.get(SCALE, scale.value())
        ).clone()

    @property
    def loss_scale(self) -> Tensor:
        """The current loss scale: a 0-d float32 tensor."""
        self._knows_scale = True
        now = self._current()
        return now if isinstance(now, Tensor) else self.chosen_scale()

    @property
    def skipped_steps(self) -> int:
        """The number of skipped steps; with ``capturable`` this waits for the GPU."""
        return int(self.scale_object.numbers[SKIPPED])

    @property
    def skipped_in_a_row(self) -> int:
        """The number of steps skipped since the last applied step."""
        return int(self.scale_object.numbers[IN_A_ROW])

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

    # -- gradients of a scaled loss ----------------------------------------------------

    @torch._disable_dynamo
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
            raise LossNotCallableError(
                f"{type(self).__name__}: expected a loss tensor, got "
                f"{type(loss).__name__}; compute it from the parameters."
            )
        product, scale = self._scaled(loss)
        if product.requires_grad:
            if self._by_hand is not None:
                self._refuse_more_gradients()
            if self._held is None:
                self._note_unscaled()
            self._held = scale
        return product

    def _scaled(self, loss: Tensor) -> tuple[Tensor, Any]:
        """Return loss x scale, and the scale."""
        self._knows_scale = True
        scale = self._current()
        return (loss.float() if loss.itemsize < 4 else loss) * scale, scale

    def _refuse_more_gradients(self) -> None:
        """Raise if scaled gradients would be added to those of ``unscale_``."""
        if any(p.grad is not None for p in self._model_parameters()):
            raise UnscaledTwiceError(
                f"{type(self).__name__}.scale_loss: expected no further loss between "
                "unscale_() and step(), got one whose scaled gradients would be added "
                "to unscaled ones; call unscale_() after the last backward, or "
                "zero_grad() to begin again."
            )
        self._begin_again()

    def _note_unscaled(self) -> None:
        """Remember a gradient that came since the last step without a scale.

        Scaled gradients may be added to it, or it may be cleared first. Only the first
        parameter is looked at.
        """
        if self.capturable:  # It would have to wait.
            return
        first = next(iter(self._model_parameters()))
        gradient = first.grad
        if gradient is None or gradient is self._stepped():
            return
        if gradient.any():
            self._unscaled = first, gradient, gradient._version

    def _refuse_mixture(self) -> None:
        """Raise if scaled gradients were added to one from before ``scale_loss``."""
        parameter, gradient, version = self._unscaled or (None, None, 0)
        if parameter is not None and parameter.grad is gradient:
            if gradient._version != version:
                raise UnsupportedError(
                    f"{type(self).__name__}.step: expected gradients that all hold the "
                    "loss scale, got some from before scale_loss(loss), to which "
                    "scaled ones were added; call scale_loss for each micro-batch, or "
                    "zero_grad() to begin again."
                )
        self._unscaled = None

    @torch._disable_dynamo
    def unscale_(self) -> None:
        """Divide the gradients by the scale now, in place, so that you can clip them.

        Each gradient becomes g x fl32(1 / s). Call it once a step, after the last
        ``backward``. The step then does not divide again, and it raises for gradients
        that were added since. Clip those of :meth:`master_params`. If a gradient is not
        finite here, the step is skipped, whatever you do with the gradient.
        ``zero_grad`` undoes the call. It costs one read of the gradients, and one host
        sync unless ``capturable``.

        Raises:
            RuntimeError: the gradients of this step are unscaled already.
        """
        self._refuse_failed()
        if self.capturable:
            self._refuse_sharded(self.master_params())
        if self._by_hand is not None:
            raise UnscaledTwiceError(
                f"{type(self).__name__}.unscale_: expected one unscaling of the "
                "gradients before each step, got a second one; take the step first, or "
                "call zero_grad() to begin again."
            )
        step, pieces = self._gathered(self._held)
        if pieces:
            held = 1.0 if self._held is None else self._held
            self._look(step, pieces, held, None)
            self._measure(step, pieces, held)
            if self._held is not None:
                with self._noting_failure():
                    self._divide(step, pieces, self._held)
        self._by_hand, self._held = step, None

    def _gathered(self, held: Any) -> tuple[Step, list[Tensor]]:
        """Return the next step and its gradients, maybe as fewer tensors.

        ``held``: the factor in the gradients, or None.
        """
        groups = self.param_groups
        present = [p for g in groups for p in g["params"] if p.grad is not None]
        return Step(present), [p.grad for p in present]

    def _look(self, step: Step, pieces: Any, held: Any, limit: float | None) -> None:
        if self.capturable:
            held = torch.as_tensor(held, device=self._device())
            step.look_on_device(pieces, held, limit)
        else:
            step.look(pieces, held, limit)

    def _measure(self, step: Step, pieces: Iterable[Tensor], divisor: Any) -> None:
        """Find the largest magnitude for a scale that depends on it."""
        if getattr(self.chosen_scale, "needs_amax", False):
            step.amax = largest_of(pieces, divisor)

    def _divide(self, step: Step, pieces: Sequence[Tensor], divisor: Any) -> None:
        """Divide the gradients in place; a caller's or shared ones as copies."""
        if self._own_gradients(step, pieces):
            pieces = [p.grad for p in step.parameters]
        if isinstance(divisor, Tensor):
            foreach.scale_in_place(pieces, inverse(divisor))
        else:
            divide_in_place(pieces, divisor)

    def _own_gradients(self, step: Step, pieces: Sequence[Tensor]) -> bool:
        """Copy gradients that must not be overwritten; return whether it did."""
        if not (self._lent or foreach.share_elements(pieces)):
            return False
        for parameter in step.parameters:
            parameter.grad = parameter.grad.clone()
        return True

    def compute_gradients(
        self,
        loss: Tensor | Callable[[], Tensor],
        var_list: Iterable[Tensor] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Tensor | float | None = None,
    ) -> Pairs:
        """Differentiate loss x scale and unscale: see the base class."""
        before = self._held
        try:
            if callable(loss):
                self._held = None
                loss = gradients.evaluate(loss)
            if isinstance(loss, Tensor) and self._held is None:
                with torch.enable_grad():
                    loss, self._held = self._scaled(loss)
            options = gate_gradients, aggregation_method, colocate_gradients_with_ops
            pairs = super().compute_gradients(loss, var_list, *options, grad_loss)
            pairs = self._divided_pairs(pairs, self._held)
        except BaseException:
            self._held = before
            raise
        self._held = None
        return pairs

    @torch.no_grad()
    def _divided_pairs(self, pairs: Pairs, held: Any) -> Pairs:
        """Return pairs with gradients times 1 / scale; ``pairs`` is overwritten.

        So the memory of a gradient is free once its product exists.
        """
        factor = inverse(held)
        present = [k for k, (gradient, _) in enumerate(pairs) if gradient is not None]
        for run in foreach.runs([pairs[k][0] for k in present]):
            places = [present[k] for k in run]
            gradients = [pairs[k][0] for k in places]
            if self._for_step and gradients[0].itemsize >= 4:
                values = [g._values() if g.is_sparse else g for g in gradients]
                foreach.scale_alike_in_place(values, factor)
            else:
                for k, product in zip(
                    places, foreach.times(gradients, factor), strict=True
                ):
                    pairs[k] = product, pairs[k][1]
            del gradients
        return pairs

    # -- steps -------------------------------------------------------------------------

    def step_inner(self) -> None:
        """Check the gradients, take or skip the step, and update the scale."""
        self._refuse_failed()
        step, pieces = self._gathered(self._held)
        if self._nothing_to_scale(step.parameters):
            self._held = None
            self.inner_optimizer.step()
            return
        self._take(step, pieces, self.inner_optimizer.step)

    def _nothing_to_scale(self, present: list[Tensor]) -> bool:
        """Whether a step has no gradients, or only makes a checkpoint's state."""
        if not present:
            self.note_no_gradients()
        return not present or (
            not torch.is_grad_enabled() and self._only_wants_state(present)
        )

    def _take(
        self,
        step: Step,
        pieces: Sequence[Tensor],
        take: Callable[[], Any],
    ) -> None:
        """Look at the gradients, update or skip, move the scale, and note the step.

        Args:
            step: the parameters with a gradient.
            pieces: their gradients, maybe as fewer tensors.
            take: makes the wrapped optimizer step.
        """
        before, held, by_hand = self._current(), self._held, self._by_hand
        divisor = 1.0 if held is None else held
        if not self._lent:
            self._refuse_later(step.parameters)
            self._refuse_mixture()
        if not self._knows_scale:
            self._warn_unscaled()
        if self._factor_of is not None:
            norm = norms.total_norm(pieces).item() / divisor
            step.look(pieces, divisor, None)
            step.factor = self._factor_of(norm)
            step.finite = step.finite and math.isfinite(norm)
        elif held is not None or not self._are_known(pieces):
            self._look(step, pieces, divisor, self.clip_norm)
        if by_hand is None:
            self._measure(step, pieces, divisor)
        else:
            step.finite, step.amax = step.finite & by_hand.finite, by_hand.amax
            if by_hand.fits is not None and by_hand.finite is not True:
                # Clipping by a norm of NaN makes every gradient NaN.
                step.fits, step.parameters = by_hand.fits, by_hand.parameters
        self._held = self._by_hand = None
        with self._noting_failure():
            if self.capturable:
                self._update_on_device(step, divisor, take)
            elif step.finite:
                divisor = divisor / step.factor if step.factor else math.inf
                self._update(step, pieces, divisor, take)
        # What the step replaced, such as a group, is looked up again.
        scale = self.scale_object
        scale.amax = step.amax
        scale.move(step.finite)
        step.scales = before, self._current()
        self._note(step)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Remember the gradients if the block raises: it may have divided some."""
        try:
            yield
        except BaseException:
            if not self._lent:
                self._failed = [p.grad for p in self._model_parameters()]
            raise

    def _update(
        self, step: Step, pieces: Any, divisor: float, take: Callable[[], Any]
    ) -> None:
        """Divide the gradients and update. A fused optimizer divides as it updates.

        If there are wrappers around it, they need a finite divisor, and dense gradients
        in float32.
        """
        path = None if divisor == 1 else fused.path_to_divider(self.inner_optimizer)
        if path is not None and not shards.are_among(pieces):
            if len(path) == 1 or (
                divisor <= norms.LARGEST
                and all([g.dtype == torch.float32 and not g.is_sparse for g in pieces])
            ):
                self._own_gradients(step, pieces)
                number = foreach.rounded(divisor, torch.float32)
                fused.step_undivided(path, take, number, pieces[0].device)
                return
        if divisor != 1:
            self._divide(step, pieces, divisor)
        take()

    def _update_on_device(self, step: Step, held: Any, take: Callable[[], Any]) -> None:
        """Let the fused optimizer divide and update, or skip, without a host sync."""
        self._own_gradients(step, [p.grad for p in step.parameters])
        fused.make_momentum(self.inner_optimizer)
        divisor = (held / step.factor).float()
        fused.step_dividing(self.inner_optimizer, take, divisor, (~step.finite).float())

    def _note(self, step: Step) -> None:
        """Store a step, count it if it was skipped, and warn or raise for a stall."""
        self._seen, self._took = step, step.finite
        if not self._lent:
            gradient = next(iter(self._model_parameters())).grad
            self._stepped = (
                (lambda: None) if gradient is None else weakref.ref(gradient)
            )
        groups, numbers = self.param_groups, self.chosen_scale.numbers
        some_absent = sum([len(g["params"]) for g in groups]) > len(step.parameters)
        if some_absent or step.finite is not True:
            # Later the groups and what is frozen may be others.
            everything = [p for group in groups for p in group["params"]]
            step.trained = [
                p for p in everything if p.requires_grad or p.grad is not None
            ]
            step.absent = [p for p in step.trained if p.grad is None]
        if isinstance(step.finite, Tensor):
            numbers[IN_A_ROW].add_(1).mul_(~step.finite)
            numbers[SKIPPED].add_(~step.finite)
        elif step.finite:
            numbers[IN_A_ROW], self._warned = 0, False
        else:
            numbers[IN_A_ROW] += 1
            numbers[SKIPPED] += 1
            # Wrappers inside took no step, so they must not report an earlier one.
            super().note_no_gradients()
            self._warn_of_stall(step)

    # -- refusals and warnings ---------------------------------------------------------

    def _refuse_failed(self) -> None:
        """Raise if a step that raised may have divided some of the gradients."""
        if not self._failed:
            return
        failed = {id(gradient) for gradient in self._failed if gradient is not None}
        if any(id(p.grad) in failed for p in self._model_parameters()):
            raise UnsupportedError(
                f"{type(self).__name__}.step: expected gradients that were made since "
                "the step that raised, got some that it may have divided by the loss "
                "scale already; call zero_grad() and compute them again."
            )
        self._failed = ()

    def _refuse_later(self, present: Iterable[Tensor]) -> None:
        """Raise for a gradient newer than ``unscale_``, because it may be scaled."""
        if self._by_hand is None:
            return
        known = set(map(id, self._by_hand.parameters))
        for parameter in present:
            if id(parameter) not in known:
                name = named_parameters(self)[parameter]
                raise UnsupportedError(
                    f"{type(self).__name__}.step: expected every gradient to be there "
                    f"at unscale_(), got a later one for {name!r}, which may hold the "
                    "loss scale; call unscale_() after the last backward, or "
                    "zero_grad() to begin again."
                )

    def _are_known(self, pieces: Iterable[Tensor]) -> bool:
        """Whether ``optimize_loss`` has checked these gradients, without hooks."""
        if not self._known or self.clip_norm is not None or fused.has_hooks(self):
            return False
        return set(map(id, self._known)) == set(map(id, pieces))

    def _warn_unscaled(self) -> None:
        """Warn once if a step comes and the loss was never scaled."""
        self._knows_scale = True
        scale: Any = self.chosen_scale
        if self.capturable and scale.keys:
            number = scale.policy.initial_loss_scale  # The present one is on a device.
        else:
            number = scale.value()
        if number != 1:
            warn_user(
                f"{type(self).__name__}: expected a loss multiplied by scale_loss(loss)"
                f", got a step, but the loss scale {number:g} was never asked for; "
                "the gradients are taken as unscaled. Call scale_loss(loss).backward()"
                ", or choose the loss scale 1."
            )

    def _warn_of_stall(self, step: Step) -> None:
        """Warn once, or raise, after many skipped steps in a row at the floor."""
        skips, scale = self.skipped_in_a_row, self.scale_object
        self._warned &= skips >= self.floor_patience
        if self.at_floor == "ignore" or skips < self.floor_patience or self._warned:
            return
        if scale.value() > scale.floor_value():
            return
        names = ", ".join(step.nonfinite(named_parameters(self)))
        error = ScaleStalledError(
            f"{type(self).__name__}: expected a finite step now and then, got {skips} "
            f"skipped in a row at loss scale {scale.value():g}, not finite: "
            f"{names or 'the norm of all gradients'}; look at these gradients, or "
            "lower the floor."
        )
        if self.at_floor == "raise":
            raise error
        self._warned = True
        warn_user(str(error))

    # -- reports -----------------------------------------------------------------------

    def note_no_gradients(self) -> None:
        """Remember a step without gradients: see the base class."""
        self._seen, self._took = NO_GRADIENTS, True
        super().note_no_gradients()

    def took_step(self) -> bool | Tensor:
        """Whether the last step counts for ``global_step``; read once a step."""
        took, self._took = self._took, True
        counts = super().took_step()
        return took if counts is True else took and counts

    @property
    def last_step(self) -> scalers.ScaledStepReport:
        """The report of the last step; before the first step, that of ``NO_STEP``.

        With ``capturable``, reading it waits for the device, and causes the warning of
        a stall at the floor.
        """
        step = self._seen
        if isinstance(step, StepReport):
            return scalers.ScaledStepReport.of(step, ())
        names, applied = named_parameters(self), bool(step.finite)
        nonfinite = step.nonfinite(names)
        has_norm = step.norm is not None and not nonfinite
        before, after = map(float, step.scales)
        if self.capturable:
            self._warn_of_stall(step)
        return scalers.report(
            getattr(self.inner_optimizer, "last_step", None),
            [name_in(names, parameter) for parameter in step.trained],
            nonfinite,
            (before, after),
            applied,
            float(step.norm) if has_norm else None,
            float(step.factor) if has_norm and applied else None,
            [name_in(names, parameter) for parameter in step.absent],
        )

    def step_numbers(self) -> dict[str, float]:
        """Return what the last step did, and the scale: see the base class."""
        return {
            **super().step_numbers(),
            "loss_scale": self.scale_object.value(),
            SKIPPED: self.skipped_steps,
            IN_A_ROW: self.skipped_in_a_row,
        }

    # -- beginning again, and steps of others ------------------------------------------

    # Older torch cannot compile an assignment to an optimizer's attributes.
    @torch._disable_dynamo
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, as the wrapped optimizer does it."""
        self._begin_again()
        super().zero_grad(set_to_none)

    def _begin_again(self) -> None:
        """Forget ``unscale_`` and a step that raised: their gradients are gone."""
        self._by_hand, self._failed, self._unscaled = None, (), None

    def _forget_unscaled(self) -> None:
        """Discard the result of ``unscale_``: see the base class."""
        self._by_hand = None
        super()._forget_unscaled()

    def _lend(self, is_lent: bool) -> None:
        """Mark the gradients of the next step as those of a caller, or no longer."""
        super()._lend(is_lent)
        self._lent = is_lent
        if not is_lent:
            self._known = ()

    def _note_finite(self, gradients: Sequence[Tensor]) -> None:
        """Let the next ``apply_gradients`` omit the finite check of these gradients."""
        self._known = gradients

    def _divides_as_it_updates(self, clips: bool) -> bool:
        """Whether the update can unscale and clip, because nothing needs them before.

        Only float32 gradients, because others are rounded after each of the products.
        """
        inner = self.inner_optimizer
        looks = self.capturable or self.clip_norm is not None
        if looks or fused.has_hooks(self) or fused.path_to_divider(inner) is None:
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
        before, self._held = self._held, None
        everything = list(self._model_parameters())
        try:
            value = gradients.evaluate(loss)
            gradients.check_loss(value, None, self.get_name())
            if self._held is None:
                value, self._held = self._scaled(value)
            with gradients.gradients_set_to(everything, [None] * len(everything)):
                gradients.backward(value, weights)
                self._begin_again()
                self._factor_of = factor_of
                yield
        except BaseException:
            self._held = before
            raise
        finally:
            self._factor_of, self._failed = None, ()

    # -- state -------------------------------------------------------------------------

    def _save_inner(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, with the scale in its first group."""
        numbers = self.scale_object.numbers
        saved = super()._save_inner()
        for key in (*self.chosen_scale.keys, *COUNTS):
            if isinstance(numbers[key], Tensor):  # Later steps update it in place.
                saved["param_groups"][0][key] = numbers[key].clone()
        return saved

    def _check_saved(self, state_dict: dict[str, Any]) -> None:
        """Raise if the state is of other wrappers or of another kind of loss scale."""
        super()._check_saved(state_dict)
        for group in state_dict["param_groups"][:1]:
            scalers.check_saved(type(self).__name__, self.chosen_scale.keys, group)

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        """Load the state; then steps may be taken again."""
        super()._load_inner(state_dict)
        self._begin_again()

    def variables(self) -> list[Tensor]:
        """Return the wrapped optimizer's state, then the numbers of a dynamic scale."""
        scale = self.scale_object
        numbers = [scale.numbers[key] for key in scale.keys]
        device = self._device() if self.capturable else torch.device("cpu")
        return [*super().variables(), *[number_on(device, n) for n in numbers]]


def check_scalable(owner: str, opt: Any) -> None:
    """Raise unless ``opt`` is an optimizer, not its class or something else."""
    if not isinstance(opt, Optimizer):
        got = f"{type(opt).__name__}; pass the optimizer that is to step"
        if isinstance(opt, type):
            got = f"the class {opt.__name__}; pass an instance"
        raise NotScalableError(f"{owner}: expected a torch.optim.Optimizer, got {got}.")


def number_on(device: torch.device | None, number: Any) -> Any:
    """Return a number as a 0-d tensor on ``device``, or a plain number for None."""
    if device is None:
        return number.item() if isinstance(number, Tensor) else number
    if isinstance(number, Tensor):
        return number.to(device)
    dtype = torch.float32 if isinstance(number, float) else torch.int64
    return torch.full((), number, dtype=dtype, device=device)


class MixedPrecisionLossScaleOptimizer(ScalingWrapper):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    If every gradient is finite, ``opt`` takes its step. Otherwise the weights, the
    state of ``opt`` and ``global_step`` do not change. Then the loss scale is updated
    once. ``last_step`` reports the step and names the gradients that were not finite.

    There are two ways to scale. ``compute_gradients`` multiplies the loss by the scale
    and the gradients by 1 / scale, rounded to float32. Or call ``scale_loss(loss)``
    before ``backward``. The next ``step``, ``apply_gradients`` or ``compute_gradients``
    then divides the gradients once. All other gradients are taken as unscaled. Call
    ``unscale_()`` between ``backward`` and ``step`` to divide at once, for example if
    you read or clip the gradients yourself.

    Clipping and unscaling are one division by scale / min(1, clip_norm / n) in float32.
    A fused ``opt`` without step hooks divides while it updates. For any other ``opt``,
    the gradients are multiplied in place, before its hooks see them. If a step raises,
    compute the gradients again before the next one.

    Args:
        opt: any torch optimizer, a wrapper included.
        loss_scale: a number >= 1, ``dynamic``, or a loss scale.
        clip_norm: the largest global norm of the unscaled gradients, > 0. n is that
            norm in float32; if n > clip_norm, each gradient g becomes g clip_norm / n.
            If n is not finite, the step is skipped. ``float("inf")``: only measure the
            norm. None: no clipping, no norm.
        at_floor: "warn", "raise" or "ignore" when the scale is at its floor and
            ``floor_patience`` steps in a row were skipped.
        floor_patience: steps.
        capturable: never wait for a GPU, so that a CUDA graph can capture the step. The
            numbers of the scale become tensors. ``opt`` must be fused, and its hooks
            see scaled gradients. Reading ``last_step`` waits.

    Raises:
        ValueError: ``opt`` is no optimizer, or scales its loss already; an argument is
            out of range.
        TypeError: ``loss_scale`` is None.

    State: numbers in ``param_groups[0]``, so they are saved and loaded with ``opt``.

    Cost: one read of the gradients and one host sync a step. A gradient that is not
    finite costs a second read, and a scale below 1 a second read and a second sync.

    Origin: TensorFlow 1.15, ``tf.train.experimental.MixedPrecisionLossScaleOptimizer``.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> sgd = torch.optim.SGD([("weight", weight)], lr=0.5)
        >>> optimizer = MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
        >>> optimizer.scale_loss(weight.sum()).backward()
        >>> optimizer.step()
        >>> weight.tolist()
        [0.5, 0.5]
        >>> weight.grad = torch.tensor([1.0, float("nan")])
        >>> optimizer.step()
        >>> optimizer.last_step.reason
        'skipped, not finite: weight; loss scale 32768 -> 16384'
    """

    def __init__(
        self,
        opt: Optimizer,
        loss_scale: Any,
        at_floor: str = "warn",
        floor_patience: int = 100,
        *,
        clip_norm: float | None = None,
        capturable: bool = False,
    ) -> None:
        check_scalable("MixedPrecisionLossScaleOptimizer", opt)
        scale = get(loss_scale)
        if scale is None:
            raise MissingLossScaleError(
                "MixedPrecisionLossScaleOptimizer: expected a loss scale, got None; "
                "give a number or 'dynamic'."
            )
        if capturable and at_floor == "raise":
            raise UnsupportedError(
                "MixedPrecisionLossScaleOptimizer: expected at_floor='warn' or "
                "'ignore' for capturable=True, got 'raise', which needs the result of "
                "each step; leave capturable off."
            )
        self.capturable = capturable
        super().__init__(opt, scale, clip_norm, at_floor, floor_patience)
        self._require_fused()

    def step_inner(self) -> None:
        """Check the gradients, take or skip the step, and update the scale."""
        self._require_fused()
        super().step_inner()

    def _require_fused(self) -> None:
        """Raise unless ``opt`` can skip a step without a host sync, if it must."""
        if self.capturable:
            fused.require_fused(
                "MixedPrecisionLossScaleOptimizer", self.inner_optimizer
            )
