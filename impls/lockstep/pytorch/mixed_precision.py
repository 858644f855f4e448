"""Float32 master weights for PyTorch: the wrapper of OpenSeq2Seq."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.interface import GATE_OP, StepReport
from lockstep.pytorch import master_copies, master_scale
from lockstep.pytorch.automatic_scaler import AutomaticLossScaler
from lockstep.pytorch.capturable import (
    check_capturable,
    folds,
    make_momentum_buffers,
    read,
)
from lockstep.pytorch.core.dynamic_scale import DynamicState
from lockstep.pytorch.core.finite import times
from lockstep.pytorch.core.masters import FlatMasters, add_penalty
from lockstep.pytorch.core.scale_on_device import DeviceState, step_on_device
from lockstep.pytorch.gradients import Pairs, dtype_name, named_parameters
from lockstep.pytorch.loss_scale import DynamicLossScale
from lockstep.pytorch.master_copies import KEY
from lockstep.pytorch.master_gradients import MasterGradients, widened
from lockstep.pytorch.regularizer import Regularizer, penalty_gradient, registered
from lockstep.pytorch.train_v1 import evaluate
from lockstep.pytorch.untraced import untraced
from lockstep.pytorch.wrapper import OptimizerWrapper
from lockstep.spec import mixed_precision as words
from lockstep.spec.pairs import as_pairs

__all__ = ["MixedPrecisionOptimizerWrapper"]


class MixedPrecisionOptimizerWrapper(OptimizerWrapper):
    """Train half-precision parameters through float32 masters, with a scaled loss.

    Each float16 or bfloat16 parameter w gets a float32 master m; other parameters are
    their own. A step: g = (float32(w.grad) + scale d reg(m)/dm) / scale is for m;
    if all g are finite, ``optimizer`` updates m and w = m, rounded and clamped to what
    the dtype of w can hold; otherwise nothing changes. Then the scale moves, once.

    ``scale_loss(loss)`` before ``backward`` multiplies by the scale; the next ``step``
    divides. ``.grad`` of half-precision parameters stays as ``backward`` made it.
    ``compute_gradients`` and ``apply_gradients`` do the same in the manner of
    TensorFlow: the pairs between them are unscaled float32 gradients and masters.

    ``param_groups`` are those of ``optimizer``: they hold the masters from now on, so
    its rates and schedulers work as ever. What others write into the model between
    steps, such as ``model.load_state_dict``, is taken over by the masters, not so what
    is written through ``.data``. A ``GradScaler`` around it is refused.

    Args:
        optimizer: any optimizer of torch over the model's parameters, a wrapper
            included; not LBFGS.
        loss_scale: None (1), a number > 0, "dynamic", an ``AutomaticLossScaler`` or a
            loss scale.
        clip_norm: the largest global norm of the unscaled gradients, > 0; None: any.
            The factor is applied together with 1 / scale.
        capturable: never wait for the device: the optimizer must be fused, the scale no
            automatic scaler. Then a norm that overflows float32 counts as not finite,
            and ``last_step``, ``state_dict`` and ``global_step`` wait.
        strict: as in OpenSeq2Seq, quirks included: only floats and automatic scalers
            can be used, a static scale takes the loss's dtype and applies gradients
            that are not finite, absent float16 gradients and, with an automatic scale,
            float16 losses are refused by ``compute_gradients``; bfloat16 has no
            masters; ``get_slot`` and ``variables()`` see nothing.

    Raises:
        ValueError: ``optimizer`` is no optimizer, an argument out of range.

    State: masters in ``state`` under "master", the scale's numbers in
    ``param_groups[0]``. For ``torch.distributed.checkpoint`` pass ``as_module(model)``
    in place of the model.

    Cost: twice float32 for each half-precision parameter. One host sync a step, a
    second one where a gradient is not finite. A fused optimizer unscales by itself.

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

    # So that a GradScaler comes to the assignment that is refused below.
    _step_supports_amp_scaling = True

    _flats: list[FlatMasters] | None = None
    _pending: float | Tensor | None = None
    _given = False
    _skipped = False
    _seen: tuple[Any, ...] | None = None
    _device_state: DeviceState | None = None

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scale: Any = None,
        *,
        clip_norm: float | None = None,
        capturable: bool = False,
        strict: bool = False,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise words.not_an_optimizer(optimizer, "torch.optim.Optimizer")
        words.check_clip_norm(clip_norm)
        scale = master_scale.scale_of(loss_scale, strict)
        if capturable:
            check_capturable(optimizer, scale)
        super().__init__(optimizer)
        self.capturable = capturable
        self.scale_object = scale
        self.clip_norm = clip_norm
        self.strict = strict
        self.masters = master_copies.make_masters(named_parameters(self), strict)
        self.regularizers: dict[Tensor, Regularizer] = {}
        master_copies.take_over(optimizer, self.masters)
        if capturable:
            make_momentum_buffers(optimizer)
        self._keep_in_state([p for p in named_parameters(self) if p in self.state])
        self._remember()

    @property
    def loss_scale(self) -> Tensor:
        """The current loss scale: a 0-d float32 tensor."""
        if self.capturable:
            return self._on_device().loss_scale.clone()
        return torch.tensor(master_scale.current(self.scale_object))

    def _on_device(self) -> DeviceState:
        """Return the scale's state as tensors where the parameters are."""
        if self._device_state is None:
            device = self._trained()[0].device
            scale = master_scale.current(self.scale_object)
            good_steps = getattr(self.scale_object, "good_steps", 0)
            self._device_state = DeviceState(
                torch.full((), scale, device=device),
                torch.full((), good_steps, device=device),
            )
        return self._device_state

    def _refuse_grad_scaler(self, value: Any) -> None:
        """Raise where a ``GradScaler`` hands its scale over."""
        raise words.scales_itself()

    grad_scale = property(fset=_refuse_grad_scaler)

    def master(self, parameter: Tensor) -> Tensor:
        """Return the master of a parameter: itself where it has no other."""
        return self.masters.get(parameter, parameter)

    def as_module(self, model: nn.Module) -> nn.Module:
        """Return a module with the model's parameter names and the masters.

        ``get_optimizer_state_dict`` and ``set_optimizer_state_dict`` of
        ``torch.distributed.checkpoint`` find an optimizer's parameters in it.
        """
        return master_copies.as_module(model, self.masters)

    @untraced
    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return loss x scale; a loss in half precision becomes float32.

        The gradients are divided by the scale once, by whatever comes first of
        ``step``, ``apply_gradients`` and ``compute_gradients``.
        """
        if self.capturable:
            self._pending = self._on_device().loss_scale
            return (loss.float() if loss.itemsize < 4 else loss) * self._pending
        scale = self._pending = master_scale.current(self.scale_object)
        if loss.itemsize < 4 and not self.strict:
            loss = loss.float()
        elif loss.itemsize < 4 and isinstance(self.scale_object, AutomaticLossScaler):
            self._pending = None
            raise words.half_loss(dtype_name(loss))
        return loss * scale

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
        master_scale.current(self.scale_object)
        if callable(loss):
            self._pending = None
            loss = evaluate(loss)
        of = {master: weight for weight, master in self.masters.items()}
        if var_list is None:
            var_list = named_parameters(self)
        weights = [of.get(v, v) if isinstance(v, Tensor) else v for v in var_list]
        try:
            if isinstance(loss, Tensor) and self._pending is None:
                loss = self.scale_loss(loss)
            options = gate_gradients, aggregation_method, colocate_gradients_with_ops
            pairs = super().compute_gradients(loss, weights, *options, grad_loss)
            return self._unscaled_pairs(pairs)
        finally:
            self._pending = None

    @torch.no_grad()
    def _unscaled_pairs(self, pairs: Pairs) -> Pairs:
        """Return float32 gradients, penalties added, times 1 / scale; and masters."""
        scale, names = self._pending, named_parameters(self)
        assert scale is not None
        penalties, wide = self._regularizers(), []
        for gradient, weight in pairs:
            # Quirk: docs/differences.md#masters-absent
            if gradient is None and self.strict and weight in self.masters:
                raise words.absent_half(names[self.masters[weight]])
            found = widened(gradient) if weight in self.masters else gradient
            if weight in penalties:
                penalty = penalty_gradient(penalties[weight], self.masters[weight])
                found = add_penalty(found, penalty * scale)
            wide.append(found)
        present = [gradient for gradient in wide if gradient is not None]
        products = iter(times(present, reciprocal(float(scale))))
        unscaled = [None if gradient is None else next(products) for gradient in wide]
        masters = [self.master(weight) for _, weight in pairs]
        return list(zip(unscaled, masters, strict=True))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Take one ``step()`` with these gradients: see the base class.

        The pairs hold masters, or half-precision parameters with gradients like them.
        """
        pairs = [
            (widened(g) if v in self.masters else g, self.masters[v])
            if isinstance(v, Tensor) and v in self.masters
            else (g, v)
            for g, v in as_pairs(grads_and_vars, self.get_name())
        ]
        self._given = True
        try:
            super().apply_gradients(pairs, global_step, name)
        finally:
            self._given = False

    @torch.no_grad()
    def step_inner(self) -> None:
        """Copy the gradients, judge them, take the step or skip it, copy back."""
        scale = 1.0 if self._pending is None else self._pending
        self._pending = None
        self._adopt_changes()
        flats = [] if self._given else self._buffers()
        gradients = MasterGradients(self._trained(), flats)
        try:
            present = gradients.present
            if not present or self._only_wants_state(present):
                self.inner_optimizer.step()
                self._keep_in_state(present)
                return
            if not self._given:
                gradients.penalize(self._regularizers(), self.masters, scale)
            if self.capturable:
                self._step_on_device(gradients, scale)
            else:
                self._judge(gradients, scale)
        finally:
            gradients.release()

    def _judge(self, gradients: MasterGradients, scale: float) -> None:
        """Take the step on gradients that still hold ``scale``, or skip it."""
        before = master_scale.current(self.scale_object)
        norm, amax, found = self._look(gradients, reciprocal(scale))
        # Quirk: docs/differences.md#masters-static-scale
        ignores = self.strict and isinstance(self.scale_object, float)
        applied = ignores or not found
        if applied:
            factor = reciprocal(scale)
            if self.clip_norm is not None and norm > self.clip_norm:
                factor *= self.clip_norm / norm
            self._take_step(gradients, factor)
        master_scale.move(self.scale_object, not found, amax)
        self._publish()
        self._skipped = not applied
        scales = before, master_scale.current(self.scale_object)
        self._seen = found, scales, applied, None if self.clip_norm is None else norm

    def _step_on_device(
        self, gradients: MasterGradients, scale: float | Tensor
    ) -> None:
        """Do the same without waiting: the fused step skips by itself."""
        present, inner = gradients.present, self.inner_optimizer
        square_sum = gradients.square_sum()
        finite, norm = square_sum.isfinite(), square_sum.sqrt() / scale
        divisor = torch.ones_like(norm)
        if self.clip_norm is not None:
            divisor = (norm / self.clip_norm).clamp(min=1)
        flags = torch.stack([p.grad.isfinite().all() for p in present])
        inner.grad_scale = (divisor * scale).float()
        inner.found_inf = finite.logical_not().float()
        try:
            inner.step()
        finally:
            del inner.grad_scale, inner.found_inf
        self._keep_in_state(present)
        for flat in gradients.flats or self._buffers():
            flat.give_back()
        self._remember()
        before = self._on_device()
        if isinstance(self.scale_object, DynamicLossScale):
            policy = self.scale_object.policy
            self._device_state = step_on_device(policy, before, finite)
        scales = before.loss_scale, self._on_device().loss_scale
        shown = None if self.clip_norm is None else norm
        self._skipped = finite.logical_not()
        self._seen = (present, flags), scales, finite, shown

    def _look(
        self, gradients: MasterGradients, factor: float
    ) -> tuple[float, float, list[Tensor]]:
        """Return norm and largest magnitude, both unscaled, and what is not finite.

        One host sync. Where squares overflow, a second look decides.
        """
        wanted = [gradients.square_sum()]
        if master_scale.wants_amax(self.scale_object):
            least = -math.inf if self.strict else 0.0
            wanted.append(gradients.largest(least).to(wanted[0]))
        square_sum, amax = [*torch.stack(wanted).tolist(), 0.0][:2]
        found = []
        if not math.isfinite(square_sum):
            found = gradients.nonfinite()
            if not found and self.clip_norm is not None:
                square_sum = gradients.exact_square_sum().item()
        largest = float(np.float32(amax) * np.float32(factor))
        return math.sqrt(square_sum) * factor, largest, found

    def _take_step(self, gradients: MasterGradients, factor: float) -> None:
        """Let the wrapped optimizer step on gradients x factor, and copy back."""
        inner = self.inner_optimizer
        if factor != 1 and not self.strict and folds(inner):
            device = gradients.present[0].device
            inner.grad_scale = torch.full((), 1 / factor, device=device)
            try:
                inner.step()
            finally:
                del inner.grad_scale
        else:
            gradients.multiply(factor)
            inner.step()
        self._keep_in_state(gradients.present)
        for flat in gradients.flats or self._buffers():
            flat.give_back()
        self._remember()

    def _trained(self) -> list[Tensor]:
        """Return masters, and parameters that are their own."""
        return [p for group in self.param_groups for p in group["params"]]

    def _buffers(self) -> list[FlatMasters]:
        """Return the flat buffers; made anew after a copy or a move to a device."""
        if self._flats is None or not all(flat.fits_weights() for flat in self._flats):
            self._flats = master_copies.flat_masters(self.masters)
        return self._flats

    def _remember(self) -> None:
        """Note what the weights are: whoever writes into one changes its version."""
        self._versions = [weight._version for weight in self.masters]

    def _adopt_changes(self) -> None:
        """Let the masters follow the weights that somebody else wrote into."""
        versions = [weight._version for weight in self.masters]
        if versions != self._versions:
            both = zip(self.masters, versions, self._versions, strict=True)
            changed = [weight for weight, now, then in both if now != then]
            master_copies.adopt_changes(changed, self.masters)
            self._remember()

    def _regularizers(self) -> dict[Tensor, Regularizer]:
        """Return the regularizers of weights, those registered by now included."""
        self.regularizers.update(registered(self.masters))
        return self.regularizers

    def _keep_in_state(self, present: Iterable[Tensor]) -> None:
        """Put masters beside the state that the wrapped optimizer has made.

        Not before: many optimizers make theirs where they find none. One without any
        gets an entry for each parameter, for checkpoints ask for one.
        """
        state = self.state
        new = [p for p in present if KEY not in state[p]]
        own = set(self.masters.values()) if new else set()
        for parameter in new:
            if parameter in own or not state[parameter]:
                state[parameter][KEY] = parameter
        self._publish()

    def _publish(self) -> None:
        """Write the scale's numbers where checkpoints find them."""
        self.param_groups[0].update(master_scale.numbers_of(self.scale_object))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the model's parameters and of the masters."""
        super().zero_grad(set_to_none)
        for weight in self.masters:
            if weight.grad is None:
                continue
            if set_to_none:
                weight.grad = None
            else:
                weight.grad = weight.grad.detach().zero_()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapped optimizer, masters in place of its weights."""
        listed = param_group["params"]
        listed = [listed] if isinstance(listed, Tensor) else list(listed)
        plain = [entry[1] if isinstance(entry, tuple) else entry for entry in listed]
        for parameter in plain:
            if parameter in self.masters:
                raise words.twice(tuple(parameter.shape))
        fresh = master_copies.make_masters(plain, self.strict)
        masters = [
            (entry[0], fresh.get(entry[1], entry[1]))
            if isinstance(entry, tuple)
            else fresh.get(entry, entry)
            for entry in listed
        ]
        super().add_param_group({**param_group, "params": masters})
        self.masters.update(fresh)
        self._flats = None
        self._remember()

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, with masters and the scale in it."""
        self._settle()
        self._publish()
        saved = super().state_dict()
        numbers = [k for group in saved["param_groups"] for k in group["params"]]
        own = set(self.masters.values())
        for number, parameter in zip(numbers, named_parameters(self), strict=True):
            if parameter in own:
                found = saved["state"].get(number, {})
                saved["state"][number] = {**found, KEY: parameter.detach()}
        return saved

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        """Load masters and scale, and let the wrapped optimizer load the rest.

        Raises:
            ValueError: a master is missing, or state has another shape; nothing has
                changed then.
        """
        names, groups = named_parameters(self), self.param_groups
        saved = master_copies.check_saved(state_dict, groups, self.masters, names)
        super()._load_inner(master_copies.without_masters(state_dict))
        with torch.no_grad():
            for master, value in saved.items():
                master.copy_(value)
        master_scale.restore(self.scale_object, self.param_groups[0])
        self._device_state = None
        self._keep_in_state(p for p in names if self.state.get(p))
        self._remember()

    def _settle(self) -> None:
        """Give the scale object the numbers that are on the device."""
        if self.capturable and isinstance(self.scale_object, DynamicLossScale):
            scale, good_steps = self._on_device()
            state = DynamicState(np.float32(scale.item()), int(good_steps.item()))
            self.scale_object.keep(state)

    def __getstate__(self) -> dict[str, Any]:
        """Return the public attributes, the scale's numbers up to date."""
        self._settle()
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "masters" in state:
            self._remember()

    def took_step(self) -> bool:
        """Say whether the step just taken counts; asked once a step."""
        skipped, self._skipped = bool(self._skipped), False
        return False if skipped else super().took_step()

    @property
    def last_step(self) -> StepReport | None:
        """What the last step with gradients did; None before the first one."""
        if self._seen is None:
            return None
        found, *rest = read(self._seen) if self.capturable else self._seen
        names = named_parameters(self)
        told = [names[p] for p in names if p.requires_grad]
        inner = getattr(self.inner_optimizer, "last_step", None) if rest[1] else None
        return words.report(inner, told, [names[p] for p in found], *rest)

    def get_name(self) -> str:
        """Return the wrapped optimizer's name and "-MP"."""
        return super().get_name() + words.SUFFIX

    def get_slot(self, var: Tensor, name: str) -> Tensor | None:
        """Return the state tensor of the master of ``var`` with this name, or None.

        # Quirk: docs/differences.md#masters-slots. Strict: None.
        """
        return None if self.strict else super().get_slot(self.master(var), name)

    def get_slot_names(self) -> list[str]:
        """Return the TF names of the state tensors that exist; strict: none."""
        if self.strict:
            return []
        return [name for name in super().get_slot_names() if name != KEY]

    def variables(self) -> list[Tensor]:
        """Return the wrapped optimizer's state, masters included; strict: none."""
        return [] if self.strict else super().variables()


def reciprocal(scale: float) -> float:
    """Return 1 / scale, rounded to float32."""
    with np.errstate(all="ignore"):
        return float(np.float32(1) / np.float32(scale))
