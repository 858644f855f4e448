"""Loss scales: a fixed one, a dynamic one, and the automatic loss scaler."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor

from lockstep import errors, scalers
from lockstep.checks import LARGEST_SCALE, LEAST_SCALE, is_scale, number_of, require
from lockstep.pytorch import shards
from lockstep.pytorch.foreach import rounded
from lockstep.pytorch.gradients import as_pairs, dtype_name
from lockstep.pytorch.norms import finite_flags

SCALE, GOOD, OVERFLOWS, STEPS = NUMBERS = (
    "loss_scale",
    "loss_scale_good_steps",
    "loss_scale_overflows",
    "loss_scale_steps",
)
"""The keys of a dynamic scale's numbers in ``param_groups[0]``."""
PREFIX = "loss_scaler_"
"""Of the keys of an automatic scaler's numbers."""


class LossScale:
    """A loss scale, whose numbers an optimizer stores in its first group.

    ``numbers`` are Python numbers, or 0-d tensors that are updated without a host sync.
    """

    keys: tuple[str, ...] = ()
    """Of ``numbers``."""
    good_steps: Any = 0
    _needs_amax = False
    """Whether the scale depends on the largest gradient, not only on overflows."""
    amax = 0.0
    """The largest magnitude of the unscaled gradients of the step, if it is needed."""

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A copy has the numbers, but not the group that they are in.
        return {**vars(self), "numbers": {key: self.numbers[key] for key in self.keys}}

    def __call__(self) -> Tensor:
        """Return the current scale: a 0-d float32 tensor."""
        return torch.tensor(self.value(), dtype=torch.float32, device="cpu")

    def value(self) -> float:
        """Return the current scale as a Python number, rounded to float32."""
        raise NotImplementedError

    def move(self, finite: bool | Tensor) -> None:
        """Update the scale after a step; ``finite``: whether all gradients were."""

    def _load(self, group: Mapping[str, Any]) -> None:
        """Load the numbers in a group, if they are also kept elsewhere."""

    def floor_value(self) -> float:
        """Return the smallest scale; a fixed scale is always at its floor."""
        return self.value()

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return a loss scale with these arguments."""
        return cls(**config)


class FixedLossScale(LossScale):
    """A loss scale that never moves.

    Args:
        loss_scale_value: the factor, a number >= 1 that float32 can hold.

    Raises:
        OutOfRangeError: a ValueError; no number, or one that is out of range.

    Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.

    Example:
        >>> FixedLossScale(128)().item()
        128.0
    """

    _owner, _name, _least = "FixedLossScale", "loss_scale_value", 1.0

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__()
        value, number = loss_scale_value, number_of(loss_scale_value)
        fine = isinstance(value, Real) and self._least <= number <= LARGEST_SCALE
        expected = f"a number >= {self._least:g}, finite in float32"
        require(self._owner, self._name, value, fine, expected, "give the factor")
        self.loss_scale_value = number

    def value(self) -> float:
        return rounded(self.loss_scale_value, torch.float32)

    def update(self, grads: Any) -> tuple[None, bool]:
        """Return None and True: a fixed scale never changes."""
        return None, True

    def get_config(self) -> dict[str, Any]:
        """Return the factor, for ``from_config``."""
        return {"loss_scale_value": self.loss_scale_value}

    def __repr__(self) -> str:
        return f"FixedLossScale({self.loss_scale_value})"


class DynamicLossScale(LossScale):
    """A loss scale that grows while gradients are finite and shrinks when they are not.

    After a finite step, good_steps += 1. When it reaches ``increment_period``,
    scale = min(scale growth, ceiling), unless the product is not finite, and
    good_steps = overflows = steps = 0. After an overflow, good_steps = 0 and
    overflows += 1. If overflows >= hysteresis and overflows / steps >= tolerance, this
    step included (by default, on each overflow), scale = max(scale / multiplier,
    floor), overflows = hysteresis - 1 and steps = 0.

    Args:
        initial_loss_scale: the first scale, > 0.
        increment_period: steps from one growth to the next, >= 1.
        multiplier: the factor of growth, > 1; an overflow divides by it.
        floor: the smallest scale, not above the initial one; None: 1, or the initial
            scale if that is smaller.
        ceiling: the largest scale, not below the initial one; None: float32's maximum.
        growth_factor: the factor of growth, > 1; None: ``multiplier``.
        backoff_factor: the factor at an overflow, in (0, 1); None: divide by
            ``multiplier``.
        hysteresis: overflows since the last growth until the scale is lowered, >= 1.
        tolerance: the share of steps since the scale last changed that may overflow,
            in [0, 1); not together with ``hysteresis``.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: ``tf.train.experimental.DynamicLossScale``, TensorFlow 1.15; hysteresis as
    in Megatron-LM, tolerance as in fairseq.

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=2)
        >>> scale.update([torch.tensor([float("inf")])])
        (None, False)
        >>> scale().item()
        4.0
    """

    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        *,
        floor: float | None = None,
        ceiling: float | None = None,
        growth_factor: float | None = None,
        backoff_factor: float | None = None,
        hysteresis: int = 1,
        tolerance: float = 0.0,
    ) -> None:
        super().__init__()
        self.policy = scalers.dynamic_policy(
            initial_loss_scale,
            increment_period,
            multiplier,
            floor,
            ceiling,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            hysteresis=hysteresis,
            tolerance=tolerance,
        )
        self.keys = NUMBERS if self.policy.is_patient else NUMBERS[:2]
        self._keep((rounded(self.policy.initial_loss_scale, torch.float32), 0, 0, 0))

    initial_loss_scale = property(lambda self: self.policy.initial_loss_scale)
    increment_period = property(lambda self: self.policy.increment_period)
    multiplier = property(lambda self: self.policy.multiplier)
    floor = property(lambda self: self.policy.floor)
    ceiling = property(lambda self: self.policy.ceiling)
    growth_factor = property(lambda self: self.policy.growth)
    hysteresis = property(lambda self: self.policy.hysteresis)
    tolerance = property(lambda self: self.policy.tolerance)

    @property
    def backoff_factor(self) -> float:
        """The factor at an overflow; without one, 1 / multiplier."""
        return self.policy.backoff_factor or 1.0 / self.policy.multiplier

    @property
    def good_steps(self) -> int:
        """Finite steps in a row since the last change of the scale."""
        return int(self.numbers[GOOD])

    def value(self) -> float:
        return float(self.numbers[SCALE])

    def update(self, grads: Any) -> tuple[None, bool]:
        """Update the scale; the gradients are to be applied if all are finite.

        ``grads``: gradients in lists, tuples or dicts. This costs one host sync.
        """
        gradients = [g for g in torch.utils._pytree.tree_leaves(grads) if g is not None]
        for gradient in gradients:
            if not isinstance(gradient, Tensor) or not gradient.is_floating_point():
                kind = getattr(gradient, "dtype", type(gradient).__name__)
                raise errors.DtypeError(
                    "DynamicLossScale.update: expected floating-point tensors, got "
                    f"{kind}; cast the gradients."
                )
        finite = all(finite_flags(gradients))
        self.move(finite)
        return None, finite

    def move(self, finite: bool | Tensor) -> None:
        numbers, policy = self.numbers, self.policy
        if isinstance(numbers[SCALE], Tensor):
            state = scalers.DynamicState(*[numbers[key] for key in self.keys])
            flag = torch.as_tensor(finite, device=state.loss_scale.device)
            after = step_on_device(policy, state, flag)
            for key, value in zip(self.keys, after, strict=False):
                numbers[key].copy_(value)  # In place, for a captured graph.
        elif finite and numbers[GOOD] + 1 < policy.increment_period:
            numbers[GOOD] += 1  # Nearly every step.
            if policy.is_patient:
                numbers[STEPS] += 1
        else:
            state = scalers.DynamicState(*[numbers[key] for key in self.keys])
            self._keep(scalers.step_dynamic(policy, state, bool(finite)))

    def _keep(self, state: Sequence[Any]) -> None:
        self.numbers.update(zip(self.keys, state, strict=False))

    def floor_value(self) -> float:
        return rounded(self.policy.floor, torch.float32)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that differ from their defaults, for ``from_config``."""
        defaults = dict(self.policy._field_defaults)
        defaults["floor"] = min(1.0, self.policy.initial_loss_scale)
        config = self.policy._asdict().items()
        return {k: v for k, v in config if k not in defaults or v != defaults[k]}

    def __repr__(self) -> str:
        """Show the scale, the good steps and the arguments."""
        state = {"current_loss_scale": self.value(), "num_good_steps": self.good_steps}
        shown = ", ".join(f"{k}={v}" for k, v in {**state, **self.get_config()}.items())
        return f"DynamicLossScale({shown})"


def step_on_device(
    policy: scalers.DynamicPolicy, state: scalers.DynamicState, finite: Tensor
) -> scalers.DynamicState:
    """Return ``step_dynamic`` in 0-d tensors, bit for bit, without a host sync."""
    scale, good, overflows, steps = state
    good, steps, overflows = good + 1, steps + 1, overflows + ~finite
    grows = finite & (good >= policy.increment_period)
    grown = (scale * policy.growth).clamp(max=policy.ceiling)
    enough = overflows.double() / steps >= policy.tolerance
    shrinks = ~finite & (overflows >= policy.hysteresis) & enough
    # If the divisor were a number, a GPU would multiply by its rounded reciprocal.
    divisor = scale.new_full((), policy.multiplier)
    factor = policy.backoff_factor
    smaller = scale / divisor if factor is None else scale * factor
    smaller = torch.where(shrinks, smaller.clamp(min=policy.floor), scale)
    grows_finitely = grows & grown.isfinite()
    stays = ~(grows | shrinks)
    # Multiplied by flags, because torch.where would first copy a number to the device.
    return scalers.DynamicState(
        torch.where(grows_finitely, grown, smaller),
        good * (finite & stays),
        overflows * stays + shrinks * (policy.hysteresis - 1),
        steps * stays,
    )


class AutomaticLossScaler(LossScale):
    """A loss scale that is updated with the largest gradient of every step.

    Backoff starts at scale_max; an overflow divides by step_factor, and every
    step_window steps after the last one the scale is multiplied by it. LogMax follows
    the mean and the deviation of log2(amax) so that overflows stay rare.

    Args:
        algorithm: "Backoff" or "LogMax"; case and outer spaces do not matter.
        params: the algorithm's parameters by name. Backoff: scale_min=1.,
            scale_max=16384., step_factor=2., step_window=2000 (steps); LogMax:
            scale_min=1., scale_max=16384., log_max=16., beta1=0.99, beta2=0.999,
            overflow_std_dev=3.09.
        strict: as in OpenSeq2Seq, quirks included: bounds are not checked, a NaN amax
            is no overflow; LogMax counts an overflow as 2^log_max, has the target 2^16
            whatever ``log_max`` is, and after one amax of 0 its scale stays NaN.

    Raises:
        UnknownNameError: a ValueError; an unknown algorithm or parameter.
        OutOfRangeError: a ValueError; a parameter of another type or out of its range.

    State: Python numbers; see ``state_dict``.

    Origin: OpenSeq2Seq (8681d381ed40), ``AutomaticLossScaler``; B. Ginsburg et al.

    Example:
        >>> scaler = AutomaticLossScaler("Backoff", {"scale_max": 1024.0})
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> pairs = [(torch.tensor([float("inf"), 1.0]), weight)]
        >>> scaler.update_op(*scaler.check_grads(pairs))
        1
        >>> scaler.loss_scale.item()
        512.0
    """

    SUPPORTED_ALGOS: ClassVar[list[str]] = ["backoff", "logmax"]

    def __init__(
        self,
        algorithm: str = "Backoff",
        params: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__()
        self.algorithm, self.policy = scalers.automatic_policy(
            algorithm, params, strict
        )
        self.strict = strict
        self._state = scalers.start_automatic(self.policy)
        self.keys = tuple(PREFIX + name for name in self._state._fields)
        self._needs_amax = self.algorithm == "logmax"
        self._publish()

    def _publish(self) -> None:
        self.numbers.update(zip(self.keys, self.state.values(), strict=True))

    def value(self) -> float:
        return float(self._state.loss_scale)

    def floor_value(self) -> float:
        return rounded(self.policy.scale_min, torch.float32)

    @property
    def loss_scale(self) -> Tensor:
        """The current scale: a 0-d float32 tensor."""
        return self()

    def state_dict(self) -> dict[str, float | int]:
        """Return the state as Python numbers, for ``load_state_dict``."""
        numbers = self._state._asdict().items()
        return {k: v if isinstance(v, int) else float(v) for k, v in numbers}

    state = property(state_dict, doc="All that changes: name -> Python number.")

    def load_state_dict(self, state_dict: Mapping[str, float | int]) -> None:
        """Load what ``state_dict`` returned.

        Raises:
            ValueError: the state of another algorithm, or numbers that no scaler has.
        """
        owner, fields = "AutomaticLossScaler: state", self._state._fields
        if not isinstance(state_dict, Mapping) or set(state_dict) != set(fields):
            raise errors.UnsupportedError(
                f"{owner} of {self.algorithm}: expected {', '.join(fields)}, got "
                f"{state_dict!r:.80}; load that of the same algorithm."
            )
        for key, value in state_dict.items():
            fine = isinstance(value, Real)
            if fine and not self.strict:
                fine = is_scale(value) if key == SCALE else math.isfinite(value)
            require(owner, key, value, fine, "a finite number", "load another state")
        now = self._state._asdict().items()
        self._state = type(self._state)(**{k: type(v)(state_dict[k]) for k, v in now})
        self._publish()

    def _load(self, group: Mapping[str, Any]) -> None:
        if set(self.keys) <= group.keys():
            own = {key.removeprefix(PREFIX): group[key] for key in self.keys}
            self.load_state_dict(own)

    def move(self, finite: Any) -> None:
        self.update_op(not finite, self.amax if finite else math.inf)
        self._publish()

    def update_op(self, has_nan: Tensor | bool, amax: Tensor | float) -> int:
        """Update the scale after a step, and return the number of steps.

        This costs one host sync if the arguments are tensors on a GPU.
        """
        if isinstance(amax, Tensor):
            flag = torch.as_tensor(has_nan, device=amax.device).to(amax.dtype)
            both = [flag.reshape(()), amax.reshape(())]
            has_nan, amax = torch.stack(both).tolist()
        self._state = scalers.step_automatic(
            self.policy, self._state, bool(has_nan), float(amax)
        )
        return self._state.iteration

    @staticmethod
    @torch.no_grad()
    def check_grads(
        grads_and_vars: Iterable[tuple[Tensor | None, Any]],
    ) -> tuple[Tensor, Tensor]:
        """Return whether there is a NaN, and the largest magnitude of the others.

        Both are 0-d tensors, and there is no host sync. Without elements, the magnitude
        is -inf. Rows with the same index are not summed.

        Raises:
            TypeError: the entries are not pairs of a gradient and a parameter, or the
                gradients have several dtypes, integers or complex numbers.
        """
        owner = "AutomaticLossScaler.check_grads"
        pairs = as_pairs(grads_and_vars, owner, may_be_empty=True)
        whole = [gradient for gradient, _ in pairs if gradient is not None]
        if is_sharded := shards.are_among(whole):
            whole = shards.added_up(whole)
        present = [g._values() if g.is_sparse else g for g in shards.parts_of(whole)]
        dtypes = sorted(set(map(dtype_name, present)))
        if len(dtypes) > 1 or any("float" not in dtype for dtype in dtypes):
            raise errors.DtypeError(
                f"{owner}: expected gradients of one floating-point dtype, "
                f"got {' and '.join(dtypes)}; cast them to one dtype first."
            )
        if not present:
            lowest = torch.tensor(-math.inf, dtype=torch.float32, device="cpu")
            return torch.tensor(False, device="cpu"), lowest
        device = present[0].device
        flags = torch.stack([v.isnan().any().to(device) for v in present])
        lowest = present[0].new_full((1,), -math.inf)  # That of no elements.
        known = [
            v.abs().nan_to_num(-math.inf, math.inf) if v.numel() else lowest
            for v in present
        ]
        maxima = torch.stack([values.amax().to(device) for values in known])
        if is_sharded:
            flags = shards.largest(flags.float(), whole) > 0
            maxima = shards.largest(maxima, whole)
        return flags.any(), maxima.amax()


class StaticScale(FixedLossScale):
    """The constant number of the masters' wrapper, which may be below 1."""

    _owner, _name = "MixedPrecisionOptimizerWrapper", "loss_scale"
    _least = LEAST_SCALE


def get(identifier: Any) -> LossScale | None:
    """Return a loss scale as it is, or make one from a number or "dynamic".

    Raises:
        ValueError: anything else except None, which is returned; or a number that is
            below 1 or not finite.
    """
    if isinstance(identifier, Real):
        return FixedLossScale(identifier)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale()
    is_automatic = isinstance(identifier, AutomaticLossScaler)
    if identifier is None or (isinstance(identifier, LossScale) and not is_automatic):
        return identifier
    raise errors.UnknownNameError(
        "loss_scale: expected a number, 'dynamic' or a loss scale, got "
        f"{identifier!r:.80}; an AutomaticLossScaler is for "
        "MixedPrecisionOptimizerWrapper."
    )
