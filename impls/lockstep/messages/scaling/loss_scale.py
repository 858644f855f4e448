"""Parameters, checks and messages of fixed and dynamic loss scales."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

from lockstep.checks import HELD, is_scale, number_of, require
from lockstep.errors import (
    UnknownArgumentError,
    UnknownNameError,
    unknown_name,
)
from lockstep.messages.scaling import refusals
from lockstep.quirks import quirks_of

__all__ = [
    "DynamicPolicy",
    "OldNames",
    "bad_identifier",
    "check_gradient_dtype",
    "checked_config",
    "dynamic_config",
    "dynamic_policy",
    "fixed_value",
    "scale_argument",
    "shown",
]

SCALE = "DynamicLossScale"
FACTOR = "give the factor for the loss"


class DynamicPolicy(NamedTuple):
    """The arguments of :class:`DynamicLossScale`.

    The update rule uses all of them except the initial scale.

    Attributes:
        growth_factor: None means ``multiplier``.
        backoff_factor: None means that an overflow divides by ``multiplier``.
    """

    initial_loss_scale: float
    increment_period: int
    multiplier: float
    floor: float
    ceiling: float
    growth_factor: float | None = None
    backoff_factor: float | None = None
    hysteresis: int = 1
    tolerance: float = 0.0

    @property
    def growth(self) -> float:
        """The factor of growth."""
        return self.multiplier if self.growth_factor is None else self.growth_factor

    @property
    def backoff(self) -> float:
        """The factor at an overflow; without ``backoff_factor``, 1 / multiplier."""
        return self.backoff_factor or 1.0 / self.multiplier

    @property
    def is_patient(self) -> bool:
        """Whether an overflow may keep the scale; only then are overflows counted."""
        return self.hysteresis > 1 or self.tolerance > 0


class OldNames:
    """Read-only attributes of the dynamic scale under the original's names."""

    initial_loss_scale: float
    increment_period: int
    multiplier: float

    @property
    def _initial_loss_scale(self) -> float:
        return self.initial_loss_scale

    @property
    def _increment_period(self) -> int:
        return self.increment_period

    @property
    def _multiplier(self) -> float:
        return self.multiplier


def fixed_value(value: Any, arguments_unchecked: bool = False) -> float:
    """Return the scale of :class:`FixedLossScale`.

    Strict: bools, NaN and infinity are accepted; of NumPy's numbers, only float64.

    Raises:
        OutOfRangeError: no number, below 1, or out of float32's range.
    """
    owner, name, remedy = "FixedLossScale", "loss_scale_value", FACTOR
    kinds = int | float if arguments_unchecked else Real
    fine = isinstance(value, kinds) and (
        arguments_unchecked or not isinstance(value, bool)
    )
    require(owner, name, value, fine, "an int or float", remedy)
    if arguments_unchecked:
        require(owner, name, value, not value < 1, "a number >= 1", remedy)
        return float(value)
    number = number_of(value)
    require(owner, name, value, number >= 1, "a number >= 1", remedy)
    require(owner, name, value, is_scale(number), HELD, remedy)
    return number


def scale_argument(loss_scale: Any, subject: str = "loss_scale") -> float | None:
    """Return a wrapper's argument as a static scale, or None if it is no number.

    NumPy's numbers are accepted; a bool is no number.

    Raises:
        OutOfRangeError: not positive, or not finite.
    """
    if isinstance(loss_scale, bool) or not isinstance(loss_scale, Real):
        return None
    value = number_of(loss_scale)
    if not is_scale(value):
        got = loss_scale if math.isnan(value) else value
        raise refusals.NOT_A_SCALE.error(subject=subject, got=got)
    return value


def dynamic_policy(
    initial_loss_scale: Any,
    increment_period: Any,
    multiplier: Any,
    floor: float | None = None,
    ceiling: float | None = None,
    strict: bool = False,
    **options: Any,
) -> DynamicPolicy:
    """Convert the arguments of :class:`DynamicLossScale`, and check them by default.

    Strict: floor 1, no ceiling, no checks. By default the floor is 1, or the initial
    scale if that is smaller.

    ``options``: the last four fields of :class:`DynamicPolicy`; none under strict.
    """
    quirks = quirks_of(strict)
    if quirks.dynamic_scale_floor:
        refuse_options({"floor": floor, "ceiling": ceiling, **options})
    if quirks.arguments_unchecked:
        initial, period = float(initial_loss_scale), int(increment_period)
        least = 1.0 if quirks.dynamic_scale_floor else min(1.0, initial)
        return DynamicPolicy(initial, period, float(multiplier), least, math.inf)
    initial = number("initial_loss_scale", initial_loss_scale)
    steps = number("increment_period", increment_period, "a finite number")
    require(SCALE, "increment_period", steps, steps.is_integer(), "a whole number")
    period = int(steps)
    factor = number("multiplier", multiplier)
    require(SCALE, "initial_loss_scale", initial, is_scale(initial), HELD)
    require(SCALE, "increment_period", period, period >= 1, ">= 1")
    fine = 1 < factor < math.inf
    require(SCALE, "multiplier", factor, fine, "> 1 (an overflow divides by it)")
    least = min(1.0, initial) if floor is None else number("floor", floor)
    most = math.inf if ceiling is None else number("ceiling", ceiling)
    fine = 0 < least <= initial
    require(SCALE, "floor", least, fine, "> 0, at most initial_loss_scale")
    require(SCALE, "ceiling", most, most >= initial, ">= initial_loss_scale")
    return checked_options(
        DynamicPolicy(initial, period, factor, least, most, **options)
    )


def checked_options(policy: DynamicPolicy) -> DynamicPolicy:
    """Return the policy after checking its factors, hysteresis and tolerance."""
    growth, backoff = policy.growth_factor, policy.backoff_factor
    if growth is not None:
        growth = number("growth_factor", growth)
        require(SCALE, "growth_factor", growth, 1 < growth < math.inf, "> 1, finite")
    if backoff is not None:
        backoff = number("backoff_factor", backoff)
        require(SCALE, "backoff_factor", backoff, 0 < backoff < 1, "in (0, 1)")
    hysteresis, share = policy.hysteresis, number("tolerance", policy.tolerance)
    counts = isinstance(hysteresis, Integral) and not isinstance(hysteresis, bool)
    fine = counts and hysteresis >= 1
    require(SCALE, "hysteresis", hysteresis, fine, "an int >= 1")
    require(SCALE, "tolerance", share, 0 <= share < 1, "in [0, 1)")
    if hysteresis > 1 and share > 0:
        raise refusals.TWO_KINDS_OF_PATIENCE.error(
            hysteresis=hysteresis, tolerance=share
        )
    return policy._replace(
        growth_factor=growth,
        backoff_factor=backoff,
        hysteresis=int(hysteresis),
        tolerance=share,
    )


def refuse_options(options: Mapping[str, Any]) -> None:
    """Strict: raise for an option that differs from its default."""
    defaults = DynamicPolicy._field_defaults
    for name, value in options.items():
        if value != defaults.get(name):
            raise refusals.OPTION_UNDER_STRICT.error(name=name, got=value)


def number(name: str, value: Any, expected: str = "a number") -> float:
    """Return ``value`` as a float; raise for a bool, a text or anything else."""
    try:
        converted = float(value)
        fine = expected == "a number" or math.isfinite(converted)
    except (TypeError, ValueError, OverflowError):
        fine = False
    kind = str(getattr(value, "dtype", type(value).__name__))
    fine = fine and not isinstance(value, str | bytes) and "bool" not in kind
    require(SCALE, name, value, fine, expected)
    return converted


def dynamic_config(policy: DynamicPolicy, dynamic_scale_floor: bool) -> dict[str, Any]:
    """Return ``get_config()``, with options only if they differ from their defaults."""
    fields = policy._asdict()
    config = {name: fields.pop(name) for name in list(fields)[:3]}
    if dynamic_scale_floor:
        return config
    unchosen = {
        "floor": min(1.0, policy.initial_loss_scale),
        "ceiling": math.inf,
        **DynamicPolicy._field_defaults,
    }
    return config | {k: v for k, v in fields.items() if v != unchosen[k]}


def shown(name: str, config: Mapping[str, Any], **state: Any) -> str:
    """Return the ``repr`` of a loss scale: the state, then the arguments."""
    pairs = {**state, **config}.items()
    return f"{name}({', '.join(f'{key}={value}' for key, value in pairs)})"


def checked_config(cls: type[Any], config: Any) -> dict[str, Any]:
    """Return the constructor arguments in ``config``; raise for unknown names."""
    if not isinstance(config, Mapping):
        raise refusals.CONFIG_NOT_A_DICT.error(owner=cls.__name__, got=config)
    known = list(inspect.signature(cls).parameters)
    for name in config:
        if name not in known:
            kind = f"{cls.__name__}.from_config: argument"
            raise UnknownArgumentError(str(unknown_name(kind, name, known)))
    return dict(config)


def bad_identifier(identifier: Any) -> UnknownNameError:
    """Build the error for an identifier that ``get`` does not know."""
    got, remedy = repr(identifier), "for one that follows the gradients give 'dynamic'"
    if type(identifier).__name__ == "AutomaticLossScaler":
        got = "an AutomaticLossScaler"
        remedy = "pass it to MixedPrecisionOptimizerWrapper, which takes it"
    return refusals.BAD_IDENTIFIER.error(got=got, remedy=remedy)


def check_gradient_dtype(dtype: str) -> None:
    """Raise for integer gradients, for which a finite check makes no sense."""
    if "float" not in dtype:
        raise refusals.INTEGER_GRADIENTS.error(got=dtype)
