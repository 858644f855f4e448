"""The wrapper that scales the loss and skips steps that are not finite."""

from __future__ import annotations

import math
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
from lockstep.pytorch.loss_scales import SCALE, LossScale, get
from lockstep.pytorch.scaled_step import (
    PLAIN,
    SCALED,
    Contents,
    Step,
    divide_in_place,
    inverse,
    largest_of,
)
from lockstep.pytorch.wrapper import OptimizerWrapper, require_optimizer

IN_A_ROW, SKIPPED = "skipped_in_a_row", "skipped_steps"
"""The keys of the counts in ``param_groups[0]``."""


class ScalingWrapper(OptimizerWrapper):
    """A wrapper that scales the loss, and skips steps that are not finite.

    The numbers of the scale are in ``param_groups[0]``, which is never cast to a dtype
    and which distributed checkpoints contain. With ``capturable`` they are 0-d tensors.
    """

    capturable = False

    _was_scaled = False
    """Whether gradients of a scaled loss came, or their absence was warned of."""
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
        if "unscale" in pipeline.stages_of(opt):
            raise UnsupportedError(
                f"{owner}: expected an optimizer whose loss is not scaled yet, got "
                f"{type(opt).__name__}; scale it once."
            )
        if scale.keys and "params" in scale.numbers:
            raise UnsupportedError(
                f"{owner}: loss_scale: expected a loss scale of its own, got another "
                "optimizer's; make one for each."
            )
        super().__init__(opt)
        self.clip_norm, self.at_floor = clip_norm, at_floor
        self.floor_patience, self.chosen_scale = floor_patience, scale
        own = {key: scale.numbers[key] for key in scale.keys}
        self.param_groups[0].update({**own, IN_A_ROW: 0, SKIPPED: 0})
        self.scale_object  # noqa: B018 - now its numbers are in the group.

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._contents = Contents()

    @property
    def scale_object(self) -> LossScale:
        """The loss scale; its numbers are those in ``param_groups[0]``."""
        scale, group = self.chosen_scale, self.inner_optimizer.param_groups[0]
        if scale.numbers is not group:
            scale._load(group)
            own = {key: scale.numbers[key] for key in scale.keys}
            for key, value in {IN_A_ROW: 0, SKIPPED: 0, **own}.items():
                group[key] = number_on(self._device(), group.get(key, value))
            scale.numbers = group
        return scale

    def _device(self) -> torch.device | None:
        """Return the device of the scale's numbers; None for Python numbers."""
        return next(self.master_params()).device if self.capturable else None

    def _current(self) -> Any:
        """Return the scale as a number, or with ``capturable`` as a copied tensor."""
        scale = self.scale_object
        if not self.capturable:
            return scale.value()
        number = scale.numbers.get(SCALE, scale.value())
        return number_on(self._device(), number).clone()

    @property
    def loss_scale(self) -> Tensor:
        """The current loss scale: a 0-d float32 tensor."""
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
        """Yield what the wrapped optimizer updates, unscaled after ``unscale_``."""
        for group in self.param_groups:
            yield from group["params"]

    def _model_parameters(self) -> Iterable[Tensor]:
        """Return the tensors that ``backward`` gives gradients to."""
        return self.master_params()

    def _a_gradient(self) -> Tensor | None:
        """Return the first gradient of the model."""
        return next(
            (p.grad for p in self._model_parameters() if p.grad is not None), None
        )

    # -- gradients of a scaled loss ----------------------------------------------------

    @torch._disable_dynamo
    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return loss x scale; a loss in half precision becomes float32.

        Once its backward pass has begun, the next ``step`` or ``apply_gradients``
        divides the gradients by the scale, once. ``compute_gradients`` of this loss
        does so itself. The backward pass raises, before it adds anything, if ``.grad``
        has gradients of an earlier loss that was not scaled, or that were unscaled.

        Raises:
            TypeError: the loss is no tensor.
        """
        if not isinstance(loss, Tensor):
            owner, kind = type(self).__name__, type(loss).__name__
            raise LossNotCallableError(f"{owner}: expected a loss tensor, got {kind}.")
        return self._scaled(loss)

    def _scaled(self, loss: Tensor) -> Tensor:
        """Return loss x scale, whose backward pass is noted."""
        scale = self._current()
        product = (loss.float() if loss.itemsize < 4 else loss) * scale
        if product.requires_grad:
            self._contents.asked = True
            product.register_hook(lambda _: self._begin_backward(scale))
        return product

    @torch._disable_dynamo  # torch 2.10 would compile the hook.
    def _begin_backward(self, scale: Any) -> None:
        """Note that gradients with this factor come next; raise if they may not."""
        contents, self._was_scaled = self._contents, True
        if contents.is_grad and contents.factor is None:
            grads = [p.grad for p in self._model_parameters() if p.grad is not None]
            if grads:
                contents.refuse_sum(type(self).__name__, grads, not self.capturable)
            self._begin_again()
        contents.note(type(self).__name__, scale)

    @torch._disable_dynamo
    def unscale_(self) -> None:
        """Divide the gradients by the scale now, in place, so that you can clip them.

        Each gradient becomes g x fl32(1 / s). Call it once a step, after the last
        ``backward``, and clip those of :meth:`master_params`. ``step`` then does not
        divide again. If a gradient is not finite here, ``step`` skips, whatever you do
        with it. A further backward pass of a scaled loss raises. ``zero_grad`` undoes
        the call. It costs one read of the gradients, and one host sync unless
        ``capturable``.

        Raises:
            RuntimeError: the gradients of this step are unscaled already.
        """
        contents = self._contents
        if self.capturable:
            self._refuse_sharded(self.master_params())
        if contents.checked is not None:
            raise UnscaledTwiceError(
                f"{type(self).__name__}.unscale_: expected one call before each step, "
                "got a second one; take the step, or call zero_grad() to begin again."
            )
        step, pieces = self._gathered()
        if pieces:
            contents.refuse_used(type(self).__name__, self._model_parameters())
            divisor = self._divisor()
            step.look(pieces, divisor, None)
            if self.chosen_scale._needs_amax:
                step.amax = largest_of(pieces, divisor)
            if contents.factor is not None:
                try:
                    self._divide(step, pieces, divisor)
                except BaseException:
                    contents.spoil(p.grad for p in self._model_parameters())
                    raise
        contents.use()
        contents.checked = step

    def _divisor(self) -> Any:
        """Return the factor in the gradients; with ``capturable`` it is a tensor."""
        number = self._contents.factor
        number = 1.0 if number is None else number
        device = self._device()
        return number if device is None else torch.as_tensor(number, device=device)

    def _gathered(self) -> tuple[Step, list[Tensor]]:
        """Return the next step and its gradients, maybe as fewer tensors."""
        groups = self.param_groups
        present = [p for g in groups for p in g["params"] if p.grad is not None]
        return Step(present), [p.grad for p in present]

    def _divide(self, step: Step, pieces: Sequence[Tensor], divisor: Any) -> None:
        """Divide the gradients in place."""
        divide_in_place(self._own_gradients(step, pieces), divisor)

    def _own_gradients(self, step: Step, pieces: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the gradients; a caller's, or ones that share memory, as copies."""
        if self._contents.own is None and not foreach.share_elements(pieces):
            return pieces
        for parameter in step.parameters:
            parameter.grad = parameter.grad.clone()
        return [parameter.grad for parameter in step.parameters]

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
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops
        with self._scaling(loss) as scaled:
            pairs = super().compute_gradients(scaled, var_list, *options, grad_loss)
            return self._divided_pairs(pairs)

    @contextmanager
    def _scaling(self, loss: Tensor | Callable[[], Tensor]) -> Iterator[Any]:
        """Yield loss x scale, to be differentiated; ``.grad`` keeps what it holds.

        A tensor after ``scale_loss`` is taken for the product. Whether it was shows in
        the factor of the gradients.
        """
        self._refuse_waiting()
        own, is_function = self._contents, callable(loss)
        self._contents = Contents(is_grad=False)
        try:
            if is_function:
                loss = gradients.evaluate(loss)
            of_loss = self._contents if is_function else own
            if isinstance(loss, Tensor) and not of_loss.asked:
                with torch.enable_grad():
                    loss = self._scaled(loss)
            yield loss
        finally:
            self._contents = own
        own.factor, own.asked = None, False

    def _refuse_waiting(self) -> None:
        """Raise if ``.grad`` has gradients of a scaled loss that no step has used."""
        if self._contents.factor is not None and self._a_gradient() is not None:
            raise UnsupportedError(
                f"{type(self).__name__}: expected a step() with the scaled gradients "
                "that are in .grad, got another loss to differentiate; call step() or "
                "zero_grad() first."
            )

    @torch.no_grad()
    def _divided_pairs(self, pairs: Pairs) -> Pairs:
        """Divide the gradients; each one's memory is free once its quotient exists."""
        factor = inverse(self._divisor())
        present = [k for k, (gradient, _) in enumerate(pairs) if gradient is not None]
        for run in foreach.runs([pairs[k][0] for k in present]):
            some = [pairs[present[k]][0] for k in run]
            if self._for_step and some[0].itemsize >= 4:
                values = [g._values() if g.is_sparse else g for g in some]
                foreach.scale_alike_in_place(values, factor)
            else:
                for k, quotient in zip(run, foreach.times(some, factor), strict=True):
                    pairs[present[k]] = quotient, pairs[present[k]][1]
            del some
        return pairs

    # -- steps -------------------------------------------------------------------------

    def step_inner(self) -> None:
        """Check the gradients, take or skip the step, and update the scale."""
        step, pieces = self._gathered()
        self._take(step, pieces, self.inner_optimizer.step)

    def _take(
        self, step: Step, pieces: Sequence[Tensor], take: Callable[[], Any]
    ) -> None:
        """Look at the gradients, update or skip by ``take``, move the scale."""
        present, contents = step.parameters, self._contents
        if not present or self._only_wants_state(present):
            self._drop_unscaled()
            contents.use()
            if not present:
                self.note_no_gradients()
            self.inner_optimizer.step()
            return
        contents.refuse_used(type(self).__name__, self._model_parameters())
        if not self._was_scaled:
            self._warn_unscaled()
        before = self._current()
        divisor = self._look(step, pieces)
        was_scaled = contents.use()
        try:
            if self.capturable:
                self._update_on_device(step, divisor, take)
            elif step.finite:
                clip = step.clip_factor
                divisor = divisor / clip if clip else math.inf
                self._update(step, pieces, divisor, take)
        except BaseException:
            contents.spoil(p.grad for p in self._model_parameters())
            raise
        is_divided = step.finite is not False or divisor == 1
        is_plain = is_divided and self._divides_grad()
        self._mark(SCALED if was_scaled and not is_plain else PLAIN)
        # What the step replaced, such as a group, is looked up again.
        scale = self.scale_object
        scale.amax = step.amax
        scale.move(step.finite)
        step.scales = before, self._current()
        self._note(step)

    def _look(self, step: Step, pieces: Sequence[Tensor]) -> Any:
        """Check and measure the gradients, unless that was done before.

        Small ones are divided too. Return the factor that they hold then.
        """
        contents, divisor = self._contents, self._divisor()
        checked, is_known = contents.checked, contents.known_finite
        may_divide = checked is None and contents.own is None and not is_known
        if contents.clip is not None:
            norm = norms.total_norm(pieces).item() / divisor
            step.look(pieces, divisor, None)
            step.clip_factor = contents.clip(norm)
            step.finite = step.finite and math.isfinite(norm)
        elif may_divide and self.clip_norm is None and step.divide(pieces, divisor):
            divisor = 1.0
        elif not is_known or self._may_change():
            step.look(pieces, divisor, self.clip_norm)
        if checked is not None:
            step.finite, step.amax = step.finite & checked.finite, checked.amax
            if checked.fits is not None and checked.finite is not True:
                # Clipping by a norm of NaN makes every gradient NaN.
                step.fits, step.parameters = checked.fits, checked.parameters
        elif self.chosen_scale._needs_amax:
            step.amax = largest_of(pieces, divisor)
        return divisor

    def _mark(self, what: str) -> None:
        """Note what a step has left in ``.grad``, see ``Contents``."""
        gradient = self._a_gradient() if self._contents.is_grad else None
        if gradient is not None:
            self._contents.mark(what, gradient)

    def _divides_grad(self) -> bool:
        """Whether a step divides the gradients of the model, not copies of them."""
        return True

    def _update(
        self, step: Step, pieces: Any, divisor: float, take: Callable[[], Any]
    ) -> None:
        """Divide the gradients and update. A fused optimizer divides as it updates."""
        path = None if divisor == 1 else fused.path_to_divider(self.inner_optimizer)
        if path is not None and not shards.are_among(pieces):
            # Wrappers on the path need a finite divisor, and dense float32 gradients.
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

    def _update_on_device(
        self, step: Step, scale: Tensor, take: Callable[[], Any]
    ) -> None:
        """Let the fused optimizer divide and update, or skip, without a host sync."""
        self._own_gradients(step, [p.grad for p in step.parameters])
        fused.make_momentum(self.inner_optimizer)
        divisor = (scale / step.clip_factor).float()
        fused.step_dividing(self.inner_optimizer, take, divisor, (~step.finite).float())

    def _note(self, step: Step) -> None:
        """Store a step, count it if it was skipped, and warn or raise for a stall."""
        self._seen, self._took = step, step.finite
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

    def _warn_unscaled(self) -> None:
        """Warn once if a step comes and the loss was never scaled."""
        self._was_scaled = True
        if (number := self.scale_object.value()) != 1:
            warn_user(
                f"{type(self).__name__}: expected scale_loss(loss).backward(), got a "
                f"step with other gradients, which are taken as not multiplied by the "
                f"loss scale {number:g}; scale the loss, or choose the scale 1."
            )

    def _warn_of_stall(self, step: Step) -> None:
        """Warn once, or raise, after many skipped steps in a row at the floor."""
        skips, scale = self.skipped_in_a_row, self.scale_object
        self._warned &= skips >= self.floor_patience
        is_due = self.at_floor != "ignore" and skips >= self.floor_patience
        if self._warned or not is_due or scale.value() > scale.floor_value():
            return
        names = ", ".join(step.nonfinite(named_parameters(self)))
        error = ScaleStalledError(
            f"{type(self).__name__}: expected a finite step, got {skips} skipped in a "
            f"row at loss scale {scale.value():g}, not finite: "
            f"{names or 'the norm of all gradients'}; look at these."
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
        """The report of the last step; with ``capturable``, this waits for it."""
        step = self._seen
        if isinstance(step, StepReport):
            return scalers.ScaledStepReport.of(step, ())
        names, applied = named_parameters(self), bool(step.finite)
        nonfinite = step.nonfinite(names)
        has_norm = step.norm is not None and not nonfinite
        if self.capturable:
            self._warn_of_stall(step)
        return scalers.report(
            getattr(self.inner_optimizer, "last_step", None),
            [name_in(names, parameter) for parameter in step.trained],
            nonfinite,
            tuple(map(float, step.scales)),
            applied,
            float(step.norm) if has_norm else None,
            float(step.clip_factor) if has_norm and applied else None,
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

    @torch._disable_dynamo  # torch 2.10 cannot compile assignments to attributes.
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, as the wrapped optimizer does it."""
        self._begin_again()
        super().zero_grad(set_to_none)

    def _begin_again(self) -> None:
        """Forget what is known of gradients that are gone."""
        self._drop_unscaled()
        self._contents.forget()

    def _drop_unscaled(self) -> None:
        """Forget the result of ``unscale_``."""
        self._contents.checked = None

    def _lend(self, is_lent: bool) -> None:
        """Note that the gradients are those of a caller, or no longer."""
        super()._lend(is_lent)
        if is_lent:
            self._drop_unscaled()
            self._contents = self._contents.lent()
            return
        lent, self._contents = self._contents, self._contents.own
        if lent.factor is None and self._contents.use():
            self._mark(SCALED)  # Copies were divided.

    def _divides_as_it_updates(self, clips: bool) -> bool:
        """Whether the update can unscale and clip: nothing needs gradients before."""
        path = fused.path_to_divider(self.inner_optimizer)
        if path is None or self.capturable or self._may_change():
            return False
        # LogMax depends on the largest clipped gradient.
        if clips and self.chosen_scale._needs_amax:
            return False
        # Other dtypes are rounded after each of the products.
        return all([p.dtype == torch.float32 for p in self.master_params()])

    def _may_change(self) -> bool:
        """Whether this wrapper or a hook may change the gradients before the update."""
        return self.clip_norm is not None or fused.has_hooks(self)

    @contextmanager
    def _gradients_in_place(
        self,
        loss: Callable[[], Tensor],
        weights: Iterable[Tensor],
        factor_of: Callable[[float], float] | None,
    ) -> Iterator[None]:
        """Set ``.grad`` of these weights for a ``step`` in the block; then restore."""
        everything = list(self._model_parameters())
        self._refuse_waiting()
        self._begin_again()
        with self._scaling(loss) as value:
            gradients.check_loss(value, None, self.get_name())
            with gradients.gradients_set_to(everything, [None] * len(everything)):
                gradients.backward(value, weights)
                self._contents.clip = factor_of
                yield

    # -- state -------------------------------------------------------------------------

    def _save_inner(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, with the scale in its first group."""
        numbers, saved = self.scale_object.numbers, super()._save_inner()
        for key in (*self.chosen_scale.keys, IN_A_ROW, SKIPPED):
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
        factor = self._contents.factor
        self._begin_again()
        self._contents.factor = factor  # The gradients are as they were.

    def variables(self) -> list[Tensor]:
        """Return the wrapped optimizer's state, then the numbers of a dynamic scale."""
        scale, device = self.scale_object, self._device() or torch.device("cpu")
        own = [number_on(device, scale.numbers[key]) for key in scale.keys]
        return [*super().variables(), *own]


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
    state of ``opt`` and ``global_step`` do not change, and ``last_step`` names the
    gradients that were not finite. Then the loss scale is updated once.

    ``compute_gradients`` multiplies the loss by the scale and the gradients by 1 /
    scale, rounded to float32. Or call ``scale_loss(loss)`` before ``backward``; the
    next ``step`` then divides the gradients once. All other gradients are taken as
    unscaled. To read or clip gradients yourself, call ``unscale_()`` before ``step``.

    Clipping and unscaling are one division by scale / min(1, clip_norm / n) in float32,
    in place; a fused ``opt`` without step hooks divides while it updates. If a step
    raises, compute the gradients again before the next one.

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

    State: numbers in ``param_groups[0]``, saved and loaded with ``opt``.

    Cost: one read of the gradients and one host sync a step, or two at a scale below 1.

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
        require_optimizer("MixedPrecisionLossScaleOptimizer", opt, NotScalableError)
        scale = get(loss_scale)
        if scale is None:
            raise MissingLossScaleError(
                "MixedPrecisionLossScaleOptimizer: expected a loss scale, got None; "
                "give a number or 'dynamic'."
            )
        if capturable and at_floor == "raise":
            raise UnsupportedError(
                "MixedPrecisionLossScaleOptimizer: expected at_floor='warn' or 'ignore'"
                " for capturable=True, got 'raise', which waits; leave one of them out."
            )
        self.capturable = capturable
        if capturable:
            fused.require_fused("MixedPrecisionLossScaleOptimizer", opt)
        super().__init__(opt, scale, clip_norm, at_floor, floor_patience)

    def step_inner(self) -> None:
        """Check the gradients, take or skip the step, and update the scale."""
        if self.capturable:  # A group may have been added since.
            fused.require_fused(type(self).__name__, self.inner_optimizer)
        super().step_inner()
