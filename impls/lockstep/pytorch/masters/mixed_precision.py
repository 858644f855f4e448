"""Float32 master weights for PyTorch: the wrapper of OpenSeq2Seq."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.docstrings import documented
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.messages.nouns import PYTORCH
from lockstep.messages.scaling.loss_scaling import PATIENCE
from lockstep.messages.workers.agn import refuse_masters_around
from lockstep.pytorch.base.fused_step import require_capturable
from lockstep.pytorch.base.gradients import (
    check_group,
    in_group,
    named_parameters,
)
from lockstep.pytorch.base.stack import splits_groups
from lockstep.pytorch.masters.buffers import FlatMasters, require_own_memory
from lockstep.pytorch.masters.checkpoint import KEY
from lockstep.pytorch.masters.copies import (
    MasterCopies,
    make_masters,
    require_masters,
    use_masters,
)
from lockstep.pytorch.masters.flat_rule import FlatRule
from lockstep.pytorch.masters.gradients import MasterGradients
from lockstep.pytorch.masters.regularizer import Regularizer
from lockstep.pytorch.masters.saved_masters import SavedMasters
from lockstep.pytorch.masters.scale import AutomaticScale, scale_of
from lockstep.pytorch.scaling.scaled_step import ScaledStep
from lockstep.quirks import quirks_of

__all__ = ["MixedPrecisionOptimizerWrapper"]


@documented
class MixedPrecisionOptimizerWrapper(SavedMasters):
    """...

    Each float16 or bfloat16 parameter w gets a float32 master m. Any other parameter is
    its own master. In a step, the gradient of m is
    g = (float32(w.grad) + scale d reg(m)/dm) / scale. If all g are finite,
    ``optimizer`` updates m, and w becomes m, rounded and clamped to the range of its
    dtype. Otherwise nothing changes. Then the loss scale is updated once.

    Call ``scale_loss(loss)`` before ``backward`` to multiply by the scale. The next
    ``step`` divides by it, but leaves ``.grad`` of half-precision parameters as it is.
    To clip by hand, call ``unscale_()`` and clip ``master_params()``.
    ``compute_gradients`` and ``apply_gradients`` do the same with TensorFlow's
    interface. Their pairs are unscaled float32 gradients and masters.

    ``param_groups`` are those of ``optimizer`` and contain the masters from now on, so
    learning rates and schedulers work as before. If the model is changed between steps,
    for example by ``model.load_state_dict``, the masters take its new values. Changes
    through ``.data`` cannot be detected directly. Every 100 steps and in ``state_dict``
    the weights are compared with the masters; changed values are used, with a warning.
    A ``GradScaler`` around this optimizer raises an error.

    Args:
        optimizer: any torch optimizer of the model's parameters, a wrapper included,
            but not LBFGS.
        capturable: never wait for a GPU. The numbers of the scale become tensors on the
            device of the parameters. ``optimizer`` must be fused, and ``loss_scale``
            must be no automatic scaler. Hooks of ``optimizer`` see the gradients while
            they are still scaled. Reading ``last_step`` waits for the GPU, and only
            then a stall at the floor causes a warning.
        strict: as in OpenSeq2Seq, with its quirks. Only floats and automatic scalers
            can be used. A static scale has the dtype of the loss, and gradients that
            are not finite are applied with it. ``compute_gradients`` refuses absent
            float16 gradients and, with an automatic scale, float16 losses. bfloat16 has
            no masters. ``get_slot`` and ``variables()`` return nothing.

    Raises:
        ValueError: ``optimizer`` is no optimizer, is differentiable, or scales its loss
            already; two half-precision parameters share memory; an argument is out of
            range; another optimizer has the same dynamic scale. With ``capturable``,
            also if ``optimizer`` is not fused or its momentum is dampened, and for
            ``strict``, an automatic scaler or "raise" at the floor.

    State: the masters are in ``state`` under "master", and the numbers of the scale in
    ``param_groups[0]``. ``load_state_dict`` rounds the masters into the weights. For
    ``torch.distributed.checkpoint`` pass ``as_module(model)`` instead of the model.

    Cost: two float32 values for each half-precision element, and one host sync a step.
    A second sync is needed if a gradient is not finite, while the scale is below 1, or
    for LogMax. A fused optimizer unscales by itself.

    Origin: OpenSeq2Seq (8681d381ed40), ``MixedPrecisionOptimizerWrapper``.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2).half())
        >>> sgd = torch.optim.SGD([("weight", weight)], lr=0.0001)
        >>> optimizer = MixedPrecisionOptimizerWrapper(sgd, 128)
        >>> for _ in range(4):
        ...     optimizer.zero_grad()
        ...     optimizer.scale_loss(weight.sum()).backward()
        ...     optimizer.step()
        >>> weight.tolist(), optimizer.master(weight)[0].item()
        ([0.99951171875, 0.99951171875], 0.9995999336242676)
        >>> optimizer.last_step.reason
        'finite; loss scale 128'
    """

    owner = words.WRAPPER
    # So GradScaler sets ``grad_scale``, which raises an error, see below.
    _step_supports_amp_scaling = True

    _rule: FlatRule | None = None

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scale: Any = None,
        *,
        clip_norm: float | None = None,
        at_floor: str = "warn",
        floor_patience: int = PATIENCE,
        capturable: bool = False,
        strict: bool = False,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise not_an_optimizer(words.WRAPPER, optimizer, PYTORCH)
        quirks = quirks_of(strict)
        if not quirks.arguments_unchecked:
            refuse_masters_around(optimizer)
        words.check_clip_norm(clip_norm)
        words.check_at_floor(at_floor, floor_patience)
        scale = scale_of(loss_scale, quirks.masters_scale_type)
        if capturable:
            options = {"strict": strict, "at_floor='raise'": at_floor == "raise"}
            require_capturable(words.WRAPPER, optimizer, options)
            if isinstance(scale, AutomaticScale):
                raise refusals.AUTOMATIC_ON_DEVICE.error()
        masters = make_masters(
            named_parameters(optimizer), quirks.half_precision_scalars
        )
        refuse_split_groups(optimizer, masters)
        require_own_memory(masters)
        super().__init__(
            optimizer,
            scale,
            clip_norm=clip_norm,
            at_floor=at_floor,
            floor_patience=floor_patience,
            capturable=capturable,
            strict=strict,
        )
        self.copies = MasterCopies(masters)
        self.regularizers: dict[Tensor, Regularizer] = {}
        limits_rows = not quirks.masters_row_clipping
        use_masters(optimizer, masters, limits_rows)
        self._in_state.free()
        self._in_state.add(self.state)

    def _refuse_grad_scaler(self, value: Any) -> None:
        """Raise if a ``GradScaler`` passes its scale to this optimizer."""
        raise refusals.SCALES_ITSELF.error()

    grad_scale = property(fset=_refuse_grad_scaler)

    @property
    def _skips(self) -> bool:
        """Whether steps that are not finite are left out."""
        is_automatic = isinstance(self.chosen_scale, AutomaticScale)
        return is_automatic or not self._quirks.masters_static_scale

    @property
    def _hides_slots(self) -> bool:
        """Whether ``get_slot`` and ``variables()`` return nothing, as under strict."""
        return self._quirks.masters_slots

    def step_inner(self) -> None:
        """Copy the gradients, check them, take or skip the step, copy the masters back.

        Each part disables autograd for itself only. The wrapped optimizer must see
        whether autograd is on, because that shows it a step that
        ``torch.distributed.checkpoint`` makes.
        """
        by_hand, borrowed = self._unscaled_by_hand, self._borrowed
        flats, gradients = self._collect()
        held, self._pending = self._pending, None
        step: ScaledStep | None = None
        try:
            if self._has_nothing_to_scale(gradients.present):
                self.inner_optimizer.step()
                self._in_state.add(gradients.present, alone=True)
                if not gradients.present:
                    self.note_no_gradients()
            else:
                self._in_state.free()
                if by_hand is None:
                    self._complete(gradients, 1.0 if held is None else held)
                pieces = None if borrowed else gradients.pieces
                step = self._step_on(gradients.present, held, pieces)
                self._take_on_masters(step, held is not None, flats)
        except BaseException:
            self._survive(step, held, self._divided(step, gradients))
            raise
        gradients.release()
        if by_hand is not None:
            self._forget_unscaled()
        if by_hand is not None or (held is not None and not borrowed):
            self._mark_applied()

    def _collect(self) -> tuple[list[FlatMasters], MasterGradients]:
        """Bring the masters up to date, and give them the gradients of the weights.

        Return the buffers of all masters, and the gradients.
        """
        groups, by_hand = self.inner_optimizer.param_groups, self._unscaled_by_hand
        trained = [p for group in groups for p in group["params"]]
        require_masters(self, trained)
        flats = self.copies.buffers()
        if by_hand is not None:
            self._refuse_mixed("step")
            self._require_own_unchanged()
            if not self._borrowed:
                self._refuse_later(p for p in trained if p.grad is not None)
        elif self._pending is None and not self._borrowed:
            self._refuse_applied()
        self.copies.copy_changes()
        overwrites = self._quirks.masters_slots or self.capturable
        if not overwrites and self.copies.is_due():
            self.copies.copy_hidden_changes()
        # Masters already have gradients that were passed or unscaled by hand.
        is_set = self._borrowed or by_hand is not None
        return flats, MasterGradients(trained, [] if is_set else flats)

    def _take_on_masters(
        self, step: ScaledStep, is_scaled: bool, flats: list[FlatMasters]
    ) -> None:
        """Take the step or skip it, and round the masters into the weights."""
        self._take(
            step,
            is_scaled,
            by_elements=self._quirks.masters_static_scale,
            needs_any=isinstance(self.chosen_scale, AutomaticScale),
            take=None if self.capturable else lambda: self._flat_rule.step(flats),
        )
        if step.applied is not False:
            self._in_state.add(step.parameters)
            self.copies.write_weights(flats)

    @property
    def _flat_rule(self) -> FlatRule:
        """The object that lets the wrapped optimizer step; a copy makes its own."""
        if self._rule is None or self._rule.optimizer is not self.inner_optimizer:
            self._rule = FlatRule(self.inner_optimizer)
        return self._rule

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the model's parameters and of the masters."""
        super().zero_grad(set_to_none)
        self.copies.clear_gradients(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapped optimizer, with masters instead of weights."""
        check_group(words.WRAPPER, param_group)
        listed = param_group["params"]
        listed = [listed] if isinstance(listed, Tensor) else list(listed)
        plain = in_group(listed)
        self._refuse_sharded(plain)
        for parameter in filter(self.copies.has, plain):
            raise refusals.TWICE.error(shape=list(parameter.shape))
        fresh = make_masters(plain, self._quirks.half_precision_scalars)
        refuse_split_groups(self, fresh)
        require_own_memory([*self.copies.masters, *fresh])
        masters = [fresh.get(parameter, parameter) for parameter in plain]
        if isinstance(listed[0] if listed else None, tuple):
            masters = [(entry[0], p) for entry, p in zip(listed, masters, strict=True)]
        super().add_param_group({**param_group, "params": masters})
        self.copies.add(fresh)

    def get_name(self) -> str:
        """Return the name of ``optimizer`` and "-MP"."""
        return super().get_name() + words.SUFFIX

    def get_slot(self, var: Tensor, name: str) -> Tensor | None:
        """Return the state tensor of the master of ``var`` with this name, or None."""
        return super().get_slot(self.master(var), name)

    def get_slot_names(self) -> list[str]:
        """Return the TF names of the state tensors that exist."""
        return [name for name in super().get_slot_names() if name != KEY]


def refuse_split_groups(optimizer: Optimizer, masters: dict[Tensor, Tensor]) -> None:
    """Raise if the optimizer would never update masters in place of weights."""
    if masters and splits_groups(optimizer):
        raise refusals.SPLITS_GROUPS.error()
