"""Float32 masters of half-precision weights: the wrapper of OpenSeq2Seq."""

from __future__ import annotations

import weakref
from collections import ChainMap, defaultdict
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import contextmanager
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils.weak import WeakTensorKeyDictionary

from lockstep import scalers
from lockstep.errors import DtypeError, NotScalableError, UnsupportedError
from lockstep.pipeline import base_of, has_layer, layers_of
from lockstep.pytorch import gradients, loss_scales
from lockstep.pytorch.flat_step import HALF, FlatMasters, FlatStep
from lockstep.pytorch.loss_scaling import ScalingWrapper
from lockstep.pytorch.scaled_step import Step
from lockstep.pytorch.wrapper import MASTER, require_optimizer

OWNER = "MixedPrecisionOptimizerWrapper"
Regularizer = Callable[[Tensor], Tensor]
REGISTERED = WeakTensorKeyDictionary()
"""Weight -> its regularizer, for as long as the weight lives."""


class StateOfWeights(MutableMapping):
    """The state of an optimizer of masters, under the weights; it has the masters."""

    def __init__(self, masters: dict[Tensor, Tensor], state: Any) -> None:
        self.masters, self.state = masters, state

    def __getitem__(self, key: Any) -> Any:
        if key not in self.masters:
            return self.state[key]
        master = self.masters[key]
        return ChainMap(self.state[master], {MASTER: master})

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default

    def __contains__(self, key: Any) -> bool:
        return self.master_or(key) in self.state

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in self.masters:
            value = {name: slot for name, slot in value.items() if name != MASTER}
        self.state[self.master_or(key)] = value

    def __delitem__(self, key: Any) -> None:
        del self.state[self.master_or(key)]

    def __iter__(self) -> Iterator[Any]:
        weights = {id(master): weight for weight, master in self.masters.items()}
        return iter([weights.get(id(key), key) for key in self.state])

    def __len__(self) -> int:
        return len(self.state)

    def master_or(self, key: Any) -> Any:
        return self.masters[key] if key in self.masters else key


class MixedPrecisionOptimizerWrapper(ScalingWrapper):
    """Train half-precision weights through float32 masters, with a loss scale.

    Each float16 or bfloat16 parameter w gets a float32 master m. Any other parameter is
    its own master. In a step, the gradient of m is
    g = (float32(w.grad) + scale d reg(m)/dm) / scale. If all g are finite,
    ``optimizer`` updates m, and w becomes m, rounded and clamped to the range of its
    dtype. Otherwise nothing changes. Then the loss scale is updated once.

    Call ``scale_loss(loss)`` before ``backward`` to multiply by the scale. The next
    ``step`` divides by it. To clip by hand, call ``unscale_()`` first. It replaces
    ``.grad`` of half-precision parameters by the unscaled gradient in float32, so
    ``clip_grad_norm_(model.parameters(), 1.0)`` works. ``compute_gradients`` and
    ``apply_gradients`` do the same with TensorFlow's interface. Their pairs are
    unscaled float32 gradients and masters; ``apply_gradients`` also takes parameters in
    half precision with gradients of their dtype or float32.

    ``param_groups`` are those of ``optimizer`` and contain the model's parameters. Only
    in a step, and inside ``on_masters()``, they contain the masters. If the model is
    changed between steps, for example by ``model.load_state_dict``, the masters take
    its new values. Write under ``torch.no_grad()``: writes through ``.data`` cannot be
    seen and are lost. Step this wrapper, never ``optimizer`` itself.

    Args:
        optimizer: any torch optimizer of the model's parameters, a wrapper included.
        loss_scale: None for 1, a number > 0, "dynamic", a loss scale or an
            ``AutomaticLossScaler``.
        clip_norm: the largest global norm n of the unscaled float32 gradients, > 0; if
            n > clip_norm, each gradient g becomes g clip_norm / n. If n is not finite,
            the step is skipped. ``float("inf")``: only measure n. None: no norm.
        at_floor: "warn", "raise" or "ignore" when the scale is at its floor and
            ``floor_patience`` steps in a row were skipped.
        floor_patience: steps.

    Raises:
        ValueError: ``optimizer`` is no optimizer or scales its loss already; an
            argument is out of range; a parameter is a DTensor, because ``fully_shard``
            keeps float32 weights itself.

    State: the masters are in ``state_dict()['state']`` under "master", and the numbers
    of the scale in ``param_groups[0]``. ``load_state_dict`` rounds the masters into the
    weights. ``torch.distributed.checkpoint`` takes the model itself.

    Cost: two float32 values for each half-precision element, and one host sync a step.

    Origin: OpenSeq2Seq (8681d381ed40), ``MixedPrecisionOptimizerWrapper``; P.
    Micikevicius et al., "Mixed Precision Training".

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

    _takes_shards = False
    _depth = 0
    """How many blocks of ``on_masters`` the caller is in."""
    _swaps: Sequence[tuple[Any, list[Any], list[Any], int]] = ()
    """For each group: the group, its parameters, their masters, their number."""
    _flats: Sequence[FlatMasters] = ()
    _flat_step: FlatStep | None = None
    _loose: Sequence[Tensor] = ()
    """The parameters without a master."""

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scale: Any = None,
        *,
        clip_norm: float | None = None,
        at_floor: str = "warn",
        floor_patience: int = 100,
    ) -> None:
        require_optimizer(OWNER, optimizer, NotScalableError)
        if has_layer(optimizer, "ZeroRedundancyOptimizer"):
            raise UnsupportedError(
                f"{OWNER}: expected an optimizer that updates the parameters of its "
                "groups, got ZeroRedundancyOptimizer; split weights and masters over "
                "the ranks with fully_shard (FSDP2) instead."
            )
        if has_layer(optimizer, "AGNOptimizer"):
            raise UnsupportedError(
                f"{OWNER}: expected an optimizer of this process alone, got "
                "AGNOptimizer, whose center does not know masters; leave one of the "
                "two out."
            )
        if not isinstance(loss_scale, loss_scales.AutomaticLossScaler):
            number = 1.0 if loss_scale is None else loss_scale
            is_number = isinstance(number, Real)
            make = loss_scales.StaticScale if is_number else loss_scales.get
            loss_scale = make(number)
        super().__init__(optimizer, loss_scale, clip_norm, at_floor, floor_patience)
        self.masters: dict[Tensor, Tensor] = {}
        self.regularizers: dict[Tensor, Regularizer] = {}
        self._make_masters()
        self._guard()

    def __getstate__(self) -> dict[str, Any]:
        self._buffers()  # A copy cannot know which weights were written before.
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "masters" in state:
            self._guard()

    def _guard(self) -> None:
        """Let the innermost optimizer refuse a step that is not on the masters."""
        base, wrapper = base_of(self), weakref.ref(self)

        def refuse(*_: Any) -> None:
            guard = wrapper()  # None once it is gone: the optimizer is free again.
            if guard is not None and not guard._depth:
                raise UnsupportedError(
                    f"{OWNER}: expected step() of the wrapper, which has the masters, "
                    "got one of the optimizer that it wraps; step the wrapper."
                )

        # Other hooks may change gradients, so they hinder fused and flat steps.
        refuse.only_checks = refuse.guards = True  # type: ignore[attr-defined]
        hooks = getattr(base, "_optimizer_step_pre_hooks", None)
        if hooks is not None:
            for key in [k for k, hook in hooks.items() if hasattr(hook, "guards")]:
                del hooks[key]  # That of an earlier wrapper of the same optimizer.
            base.register_step_pre_hook(refuse)

    def __getattr__(self, name: str) -> Any:
        """Forward as every wrapper does; ``train`` and ``eval`` act on the masters."""
        value = super().__getattr__(name)
        if name not in ("train", "eval"):
            return value

        def on_masters(*args: Any, **kwargs: Any) -> Any:
            with self.on_masters():
                return value(*args, **kwargs)

        return on_masters

    # -- masters -----------------------------------------------------------------------

    def master(self, parameter: Tensor) -> Tensor:
        """Return the master of a parameter, or the parameter if it has none."""
        return self.masters.get(parameter, parameter)

    def master_params(self) -> Iterator[Tensor]:
        """Yield the masters and parameters without one, unscaled by ``unscale_``."""
        for parameter in super().master_params():
            yield self.masters.get(parameter, parameter)

    def _model_parameters(self) -> Iterable[Tensor]:
        if not self._depth:
            return super().master_params()
        return (weight for swap in self._swaps for weight in swap[1])

    @contextmanager
    def on_masters(self) -> Iterator[None]:
        """Put the masters into the groups and the state, then round them to weights.

        For methods of ``optimizer`` that write into its parameters. Gradients are not
        copied.

        Example:
            >>> weight = torch.nn.Parameter(torch.ones(2).half())
            >>> optimizer = MixedPrecisionOptimizerWrapper(torch.optim.SGD([weight]))
            >>> with optimizer.on_masters():
            ...     optimizer.param_groups[0]["params"][0].dtype
            torch.float32
        """
        self._enter()
        try:
            with torch.no_grad():
                yield
        finally:
            self._exit()
            if not self._depth:
                self._write_weights()

    def _enter(self) -> None:
        """Swap parameters for masters, in all groups and in the state."""
        if not self._depth:
            self._buffers()
            for group, _, masters, _ in self._swaps:
                group["params"] = masters
            if self.masters:
                base = base_of(self)
                base.state = base.state.state
        self._depth += 1

    def _exit(self) -> None:
        """Swap back, also in groups and a state that were loaded meanwhile."""
        self._depth -= 1
        if self._depth:
            return
        # A group that was added inside gets its masters when the next step looks.
        base, rows = base_of(self), zip(self.param_groups, self._swaps, strict=False)
        self._swaps = [(group, *swap[1:]) for group, swap in rows]
        for group, weights, _, _ in self._swaps:
            group["params"] = weights
        if self.masters:
            base.state = StateOfWeights(self.masters, base.state)

    def _buffers(self) -> Sequence[FlatMasters]:
        """Return the buffers for the groups as they are; masters follow weights."""
        if self._depth:
            return self._flats
        groups, state = self.param_groups, base_of(self).state
        known = [swap[0] for swap in self._swaps]
        if (
            list(map(id, groups)) != list(map(id, known))
            or any([g["params"] is not w or len(w) != n for g, w, _, n in self._swaps])
            or any([p.dtype in HALF for p in self._loose])
            or (self.masters and type(state) is not StateOfWeights)
        ):
            self._make_masters()
        elif not all([flat.fits() for flat in self._flats]):
            self._make_flats()
        for flat in self._flats:
            flat.follow_weights()
        return self._flats

    def _make_masters(self) -> None:
        """Make masters for parameters that have none, and their state float32."""
        base = base_of(self)
        everything = [p for group in self.param_groups for p in group["params"]]
        fresh = [w for w in everything if w.dtype in HALF and w not in self.masters]
        places = {weight.data_ptr() for weight in self.masters}
        state, earlier = base.state, {}
        if isinstance(state, StateOfWeights):  # Maybe of an earlier wrapper.
            state, earlier = state.state, state.masters
        for weight in fresh:
            # Without elements, and on the meta device, an address is 0.
            if weight.data_ptr() and weight.data_ptr() in places:
                raise UnsupportedError(
                    f"{OWNER}: expected weights with memory of their own, got two that "
                    f"begin at the same place; tie weights by using one parameter."
                )
            places.add(weight.data_ptr())
        for weight in fresh:
            known = earlier.get(weight, weight)
            values = known.detach().float().contiguous()
            master = self.masters[weight] = Parameter(values, weight.requires_grad)
            if known in state:
                entry = state[master] = dict(state.pop(known))
                for key, slot in entry.items():
                    if isinstance(slot, Tensor) and slot.dtype in HALF:
                        entry[key] = slot.float().contiguous()
        for layer in layers_of(self.inner_optimizer):  # Row clipping has limits.
            limits = vars(layer).get("limits", {})
            limits |= {self.masters[w]: limits[w] for w in fresh if w in limits}
        if self.masters:
            base.state = StateOfWeights(self.masters, state)
        self._swaps = [
            (group, weights, [self.master(w) for w in weights], len(weights))
            for group in self.param_groups
            for weights in [group["params"]]
        ]
        self._loose = [p for p in everything if p.dtype not in HALF]
        self._make_flats()

    def _make_flats(self) -> None:
        """Lay the masters out in buffers, one for each device and dtype."""
        alike: dict[Any, list[Tensor]] = defaultdict(list)
        for weight in self.masters:
            if weight.dtype not in HALF:
                raise DtypeError(
                    f"{OWNER}: expected parameters in half precision beside their "
                    f"float32 masters, got {weight.dtype} for one of shape "
                    f"{list(weight.shape)}; convert the model first and make the "
                    "optimizer then."
                )
            alike[weight.device, weight.dtype].append(weight)
        for flat in self._flats:
            flat.follow_weights()
        self._flats = [
            FlatMasters(weights, [self.masters[weight] for weight in weights])
            for weights in alike.values()
        ]

    def _write_weights(self) -> None:
        for flat in self._flats:
            flat.write_weights()

    # -- gradients ---------------------------------------------------------------------

    def _gathered(self) -> tuple[Step, list[Tensor]]:
        """Give the masters the gradients of the weights, in the flat buffers."""
        is_own = self._contents.own is None
        sparse = self._copy_gradients(self._divisor()) if is_own else []
        present = [p for s in self._swaps for p in s[2] if p.grad is not None]
        if not is_own:
            return Step(present), [p.grad for p in present]
        loose = [p.grad for p in self._loose if p.grad is not None]
        flats = self._flats if len(present) > len(loose) else ()
        return Step(present), [*[f.gradients for f in flats], *sparse, *loose]

    @torch.no_grad()
    def _copy_gradients(self, held: float) -> list[Tensor]:
        """Copy gradients, add penalties' times ``held``, and return the sparse ones."""
        # After ``unscale_`` they have their penalties already.
        penalties = {} if self._contents.checked else self._regularizers()
        sparse = []
        for flat in self._flats:
            gradients = [weight.grad for weight in flat.weights]
            flat.copy_gradients(gradients)
            rows = zip(flat.masters, flat.gradient_views, gradients, strict=True)
            for master, view, gradient in rows:
                master.grad = None if gradient is None else view
                if gradient is not None and gradient.is_sparse:
                    master.grad = gradient.float()
                    sparse.append(master)
            for k, weight in enumerate(flat.weights) if penalties else ():
                if weight in penalties:
                    master, view = flat.masters[k], flat.gradient_views[k]
                    if master.grad is not None and master.grad.is_sparse:
                        view.copy_(master.grad.to_dense())
                    view.add_(penalty_gradient(penalties[weight], master) * held)
                    master.grad = view
        return [m.grad for m in sparse if m.grad.is_sparse]

    def _regularizers(self) -> dict[Tensor, Regularizer]:
        """Return weight -> regularizer; a frozen weight has no penalty."""
        for weight, regularizer in REGISTERED.items():
            if weight in self.masters:
                self.regularizers[weight] = regularizer
        return {w: r for w, r in self.regularizers.items() if w.requires_grad}

    def unscale_(self) -> None:
        """Divide the gradients by the scale now, so that you can clip them in place.

        ``.grad`` of a half-precision parameter becomes the unscaled gradient in
        float32, with the penalty's, because float16 could not hold it. For all else
        see the base class.
        """
        self._buffers()
        super().unscale_()
        for weight, master in self.masters.items():
            if master.grad is not None:
                weight.grad = None
                weight.grad_dtype = None  # Any dtype.
                weight.grad = master.grad

    def _divide(self, step: Step, pieces: Sequence[Tensor], divisor: Any) -> None:
        if self._contents.own or any([p.grad is not None for p in self._loose]):
            pieces = [p.grad for p in step.parameters]
        super()._divide(step, pieces, divisor)

    def _divided_pairs(self, pairs: gradients.Pairs) -> gradients.Pairs:
        """Return pairs of an unscaled float32 gradient and a master."""
        self._buffers()
        penalties = self._regularizers()
        views = {
            id(weight): view
            for flat in self._flats
            for weight, view in zip(flat.weights, flat.gradient_views, strict=True)
        }
        for k, (gradient, weight) in enumerate(pairs):
            if id(weight) not in views:
                continue
            master = self.masters[weight]
            if gradient is not None and gradient.is_sparse:
                gradient = gradient.float()
            elif gradient is not None and self._for_step:
                gradient = views[id(weight)].copy_(gradient)
            elif gradient is not None:
                gradient = gradient.float().contiguous()
            if penalties and weight in penalties:
                penalty = penalty_gradient(penalties[weight], master)
                penalty *= self._divisor()
                if gradient is not None:
                    gradient = gradient.to_dense() if gradient.is_sparse else gradient
                gradient = penalty if gradient is None else gradient + penalty
            pairs[k] = gradient, master
        return super()._divided_pairs(pairs)

    def _as_trained(self, pairs: gradients.Pairs) -> gradients.Pairs:
        """Replace half-precision parameters by masters, their gradients by float32."""
        trained, weights = [], set(map(id, self.masters))
        for gradient, parameter in super()._as_trained(pairs):
            if id(parameter) in weights:
                if isinstance(gradient, Tensor) and gradient.dtype == parameter.dtype:
                    gradient = gradient.float()
                parameter = self.masters[parameter]
            trained.append((gradient, parameter))
        return trained

    def _lend(self, is_lent: bool) -> None:
        if is_lent:
            self._enter()
        super()._lend(is_lent)
        if not is_lent:
            self._exit()

    # -- steps -------------------------------------------------------------------------

    def step_inner(self) -> None:
        """Copy the gradients, check them, take or skip the step, round the masters."""
        self._enter()
        try:
            step, pieces = self._gathered()
            self._take(step, pieces, self._step_flat)
        finally:
            if self._contents.own is None and self._contents.checked is None:
                self._release()
            self._exit()

    def _divides_grad(self) -> bool:
        return not self.masters

    def _step_flat(self) -> None:
        """Let the optimizer step, on whole buffers where that is the same."""
        flat_step = self._flat_step
        if flat_step is None or flat_step.optimizer is not self.inner_optimizer:
            flat_step = self._flat_step = FlatStep(self.inner_optimizer)
        try:
            flat_step.step(self._flats)
        finally:
            self._write_weights()

    def _release(self) -> None:
        for flat in self._flats:
            for master in flat.masters:
                master.grad = None

    def _drop_unscaled(self) -> None:
        """Forget ``unscale_`` and the gradients that it gave to masters."""
        if self._contents.checked is not None:
            self._release()
        super()._drop_unscaled()

    @property
    def last_step(self) -> scalers.ScaledStepReport:
        """The report of the last step: see the base class."""
        self._enter()  # So all parameters of the step have names.
        try:
            return super().last_step
        finally:
            self._exit()

    def _follow_groups(self) -> None:
        super()._follow_groups()
        self._buffers()

    # -- state -------------------------------------------------------------------------

    def _save_inner(self) -> dict[str, Any]:
        self._enter()
        try:
            saved = super()._save_inner()
            numbers = [k for group in saved["param_groups"] for k in group["params"]]
            own, state = set(self.masters.values()), dict(saved["state"])
            for number, parameter in zip(numbers, self.master_params(), strict=True):
                # Distributed checkpoints need an entry for each trained parameter.
                trained = own and parameter.requires_grad and number not in state
                if parameter in own or trained:
                    master = {MASTER: parameter.detach()}
                    state[number] = {**state.get(number, {}), **master}
            return {**saved, "state": state}
        finally:
            self._exit()

    def _of_inner(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        state = {}
        for key, entry in state_dict["state"].items():
            if not isinstance(entry, Mapping) or set(entry) != {MASTER}:
                state[key] = entry
            if isinstance(entry, Mapping) and MASTER in entry and len(entry) > 1:
                state[key] = {k: v for k, v in entry.items() if k != MASTER}
        return {**state_dict, "state": state}

    def _saved_masters(self, state_dict: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
        """Return masters and their saved values; a frozen one may have none."""
        numbers = [k for group in state_dict["param_groups"] for k in group["params"]]
        rows = zip(numbers, gradients.named_parameters(self).items(), strict=True)
        found = []
        for number, (parameter, name) in rows:
            if parameter not in self.masters:
                continue
            master = self.masters[parameter]
            value = state_dict["state"].get(number, {}).get(MASTER)
            if value is not None and value.shape == master.shape:
                found.append((master, value))
            elif value is not None or parameter.requires_grad:
                got = "none" if value is None else f"one of shape {list(value.shape)}"
                raise UnsupportedError(
                    f"{OWNER}: expected a state with the masters of every "
                    f"half-precision parameter, got {got} for {name!r}; load the "
                    "optimizer's state before it is wrapped, or save it again."
                )
        return found

    def _check_saved(self, state_dict: dict[str, Any]) -> None:
        super()._check_saved(state_dict)
        self._saved_masters(state_dict)

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        self._buffers()
        saved = self._saved_masters(state_dict)
        with self.on_masters():
            super()._load_inner(self._of_inner(state_dict))
            for master, value in saved:
                master.copy_(value)

    def get_name(self) -> str:
        """Return the name of ``optimizer`` and "-MP"."""
        return super().get_name() + "-MP"


def mp_regularizer_wrapper(regularizer: Regularizer) -> Callable[[Tensor], object]:
    """Return a regularizer whose gradient the masters' wrapper computes in float32.

    In float16, the gradient of the penalty of a small weight underflows. So
    :class:`MixedPrecisionOptimizerWrapper` computes it at the float32 master. A weight
    has to be registered before the step, but may be registered after the wrapper was
    constructed. Of two regularizers of a weight the last one counts, as in the
    original. In a copied model, register the weights again, or copy the wrapper too.

    Args:
        regularizer: returns the penalty of a weight, a 0-d tensor.

    Returns:
        A function of a weight. For a weight in half precision it stores a weak
        reference to the weight and returns None, because there is nothing to add to the
        loss. For any other weight it returns the result of ``regularizer``.

    Raises:
        DtypeError: a TypeError; ``regularizer`` cannot be called.

    Origin: OpenSeq2Seq (8681d381ed40), ``mp_regularizer_wrapper``.

    Example:
        >>> l2 = mp_regularizer_wrapper(lambda weight: 0.5 * weight.square().sum())
        >>> l2(torch.ones(2)).item()
        1.0
        >>> l2(torch.nn.Parameter(torch.ones(2).half())) is None
        True
    """
    if not callable(regularizer):
        raise DtypeError(
            "mp_regularizer_wrapper: regularizer: expected a callable of a weight, got "
            f"{type(regularizer).__name__}; pass a function that returns the penalty."
        )

    def register(weight: Tensor) -> object:
        if weight.dtype not in HALF:
            return regularizer(weight)
        REGISTERED[weight] = regularizer
        return None

    return register


def penalty_gradient(regularizer: Regularizer, master: Tensor) -> Tensor:
    """Return d penalty / d master."""
    with torch.enable_grad():
        weight = master.detach().requires_grad_()
        penalty, gradient = regularizer(weight), None
        is_tensor = isinstance(penalty, Tensor) and penalty.requires_grad
        if is_tensor and penalty.numel() == 1:
            (gradient,) = torch.autograd.grad(penalty, weight, allow_unused=True)
    if gradient is None:
        raise DtypeError(
            "mp_regularizer_wrapper: regularizer: expected a penalty that is a scalar "
            f"tensor with a gradient for the weight, got {penalty!r:.80}; compute it "
            "from the weight in tensors, and sum it."
        )
    return gradient
