"""Parameters, ranges, checks and messages of the learning-rate policies."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from lockstep.checks import FLOATS, dtype_name, with_full_name
from lockstep.errors import (
    sentence,
    unknown_name,
)
from lockstep.messages.optimizers.parameters import REQUIRED, Parameter
from lockstep.messages.schedules import refusals
from lockstep.quirks import quirks_of
from lockstep.strict.binding import bound

__all__ = [
    "POLICIES",
    "PolicySpec",
    "checked",
    "find",
    "overlapping_ranges",
    "refuse_limit_of_another_dtype",
    "rises",
    "step_boundaries",
    "strict_module",
]


Policy = TypeVar("Policy", bound=Callable[..., Any])


def finite(least: float, above: bool = False) -> Callable[[Any], bool]:
    """Return a test for a finite number >= ``least``, or > ``least`` if ``above``."""
    return lambda v: (
        not isinstance(v, bool)
        and math.isfinite(v)
        and (v > least if above else v >= least)
    )


def whole(value: Any) -> bool:
    """Return whether a value is an integer >= 0."""
    is_count = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_count and int(value) >= 0


def is_list(value: Any) -> bool:
    """Return whether a value is a list or another sequence, except text."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def rates(value: Any) -> bool:
    """Return whether a value is a list of finite numbers >= 0."""
    return is_list(value) and all(math.isfinite(v) and v >= 0 for v in value)


RATE = Parameter("learning_rate", REQUIRED, "a finite rate >= 0", finite(0))
STEPS = Parameter("decay_steps", REQUIRED, "a number of steps > 0", finite(0, True))
BEGIN = Parameter("begin_decay_at", 0, "a step (an integer >= 0)", whole)
FLOOR = Parameter("min_lr", 0.0, "a finite rate >= 0", finite(0))
POWER = Parameter("power", 1.0, "a finite exponent > 0", finite(0, True))
WARM_UP = Parameter("warmup_steps", 0, "a number of steps >= 0", finite(0))


@dataclass(frozen=True)
class PolicySpec:
    """One policy: its parameters in positional order, without the step.

    ``float_rate``: under strict an integer rate fails, as in the original.
    """

    name: str
    parameters: tuple[Parameter, ...]
    float_rate: bool = False

    @property
    def signature(self) -> inspect.Signature:
        """The signature of the original, which begins with the step."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        empty = inspect.Parameter.empty
        defaults = {
            p.name: empty if p.default is REQUIRED else p.default
            for p in self.parameters
        }
        parameters = [
            inspect.Parameter(name, kind, default=default)
            for name, default in {"global_step": empty, **defaults}.items()
        ]
        return inspect.Signature(parameters)

    def check(self, values: Mapping[str, Any], strict: bool) -> None:
        """Raise OutOfRangeError for a number outside its range.

        As in the original, strict checks only the power of ``inv_poly_decay``. Tensors
        are not checked, because their values may not be known yet.
        """
        quirks = quirks_of(strict)
        for parameter in self.parameters:
            value = values.get(parameter.name, parameter.default)
            if value is REQUIRED or is_tensor(value):
                continue
            if (
                not quirks.arguments_unchecked
                or (self.name, parameter.name) == INVERSE_POWER
            ):
                parameter.check(self.name, value)
        rate = values.get("learning_rate")
        refuses = quirks.policies_integer and self.float_rate
        if refuses and isinstance(rate, numbers.Integral):
            raise refusals.INTEGER_RATE.error(
                policy=self.name, got=rate, as_float=float(rate)
            )

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``given`` after checking that its names are known and complete.

        Raises:
            UnknownNameError: the policy has no parameter of a name; the message
                suggests the nearest.
            OutOfRangeError: a required parameter is missing.
        """
        known = [parameter.name for parameter in self.parameters]
        for name in given:
            if name not in known:
                raise unknown_name(f"parameter of {self.name}", name, known)
        for parameter in self.parameters:
            if parameter.default is REQUIRED and parameter.name not in given:
                raise refusals.MISSING_PARAMETER.error(
                    policy=self.name, name=parameter.name, claim=parameter.claim
                )
        return dict(given)


INVERSE_POWER = ("inv_poly_decay", "power")

POLICIES: dict[str, PolicySpec] = {
    spec.name: spec
    for spec in (
        PolicySpec("fixed_lr", (RATE,)),
        PolicySpec(
            "piecewise_constant",
            (
                RATE,
                Parameter("boundaries", REQUIRED, "a list of steps", is_list),
                Parameter("decay_rates", REQUIRED, "a list of factors >= 0", rates),
                Parameter(
                    "steps_per_epoch",
                    None,
                    "an integer > 0 or None",
                    lambda v: v is None or (whole(v) and v > 0),
                ),
            ),
        ),
        PolicySpec(
            "exp_decay",
            (
                RATE,
                STEPS,
                Parameter("decay_rate", REQUIRED, "a factor > 0", finite(0, True)),
                Parameter(
                    "use_staircase_decay", REQUIRED, "a bool", lambda v: v in (0, 1)
                ),
                BEGIN,
                FLOOR,
            ),
            float_rate=True,
        ),
        PolicySpec(
            "poly_decay",
            (RATE, STEPS, POWER, BEGIN, FLOOR, WARM_UP),
            float_rate=True,
        ),
        PolicySpec(
            "cosine_decay",
            (
                RATE,
                STEPS,
                # quirks.policies_cosine
                Parameter(
                    "power",
                    1.0,
                    "1",
                    lambda v: v == 1,
                    "leave it out, for a cosine has none, or use poly_decay",
                ),
                BEGIN,
                FLOOR,
                WARM_UP,
            ),
        ),
        PolicySpec(
            "inv_poly_decay",
            (
                Parameter("learning_rate", REQUIRED, "a rate > 0", finite(0, True)),
                STEPS,
                Parameter("min_lr", REQUIRED, FLOOR.claim, FLOOR.admits),
                POWER,
                BEGIN,
                WARM_UP,
                Parameter("name", "learning_rate", "a name", lambda v: True),
            ),
            float_rate=True,
        ),
        PolicySpec(
            "transformer_policy",
            (
                RATE,
                Parameter("d_model", REQUIRED, "a width > 0", finite(0, True)),
                Parameter(
                    "warmup_steps", REQUIRED, "a number of steps > 0", finite(0, True)
                ),
                Parameter(
                    "max_lr",
                    None,
                    "a finite rate >= 0 or None",
                    lambda v: v is None or finite(0)(v),
                ),
                Parameter("coefficient", 1.0, "a finite factor >= 0", finite(0)),
                Parameter(
                    "dtype",
                    "float32",
                    f"a dtype of {', '.join(FLOATS)}",
                    lambda v: dtype_name(v) in FLOATS,
                ),
            ),
        ),
    )
}
"""The policies by name."""


def find(name: str) -> PolicySpec:
    """Return the description of a policy; raise UnknownNameError if none exists."""
    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES)
    return POLICIES[name]


def checked(policy: Policy, arrays: bool = True, short: bool = False) -> Policy:
    """Decorate a policy to check its arguments; ``__wrapped__`` does not check.

    Args:
        policy: the function.
        arrays: whether the step may be a NumPy array.
        short: whether ``learning_rate`` may be called ``lr``, as in torch.
    """
    name = policy.__name__
    spec = POLICIES[name]
    names = [parameter.name for parameter in spec.parameters]

    @functools.wraps(policy)
    def checking(global_step: Any, *args: Any, strict: bool = False, **kw: Any) -> Any:
        unchecked = quirks_of(strict).arguments_unchecked
        check_step(name, global_step, unchecked, arrays)
        if short and "lr" in kw:
            positional = dict(zip(names[: len(args)], args, strict=True))
            with_full_name(name, {**positional, "lr": kw["lr"]})
            kw = with_full_name(name, kw)
        spec.check({**dict(zip(names, args, strict=False)), **kw}, strict)
        return policy(global_step, *args, strict=strict, **kw)

    return cast(Policy, checking)


def strict_module(module: ModuleType, name: str) -> ModuleType:
    """Return a module with the policies of ``module`` bound to ``strict=True``.

    Old code imports single policies from it by name, so ``import`` must find it.
    """
    strict = ModuleType(name, f"The policies of {module.__name__}, strict.")
    for policy, spec in POLICIES.items():
        function = getattr(module, policy)
        original = functools.wraps(function)(functools.partial(function))
        vars(original)["__signature__"] = spec.signature
        setattr(strict, policy, bound(function, original, name))
    strict.__dict__["__all__"] = list(POLICIES)
    sys.modules[name] = strict
    return strict


def check_step(name: str, step: Any, unchecked: bool, arrays: bool = True) -> None:
    """Raise OutOfRangeError unless the step is an integer >= 0, or an integer tensor.

    The value of a tensor is not checked.
    """
    if isinstance(step, np.ndarray):
        counts = step.dtype.kind in "iu" and (unchecked or not np.any(step < 0))
        fine = arrays and counts
    elif is_tensor(step):
        fine = unchecked or "int" in dtype_name(step.dtype)
    else:
        is_int = isinstance(step, numbers.Integral)
        fine = is_int and (unchecked or (int(step) >= 0 and not isinstance(step, bool)))
    if not fine:
        raise refusals.BAD_STEP.error(policy=name, got=step)


def step_boundaries(
    boundaries: Sequence[int], decay_rates: Sequence[float], steps_per_epoch: int | None
) -> list[int]:
    """Return the boundaries in steps.

    Raises:
        OutOfRangeError: boundaries and rates differ in number, or a boundary is no
            integer.
        NoBoundariesError: there are no boundaries.
    """
    steps = [b if steps_per_epoch is None else steps_per_epoch * b for b in boundaries]
    if len(steps) != len(decay_rates):
        raise refusals.BOUNDARIES_WITHOUT_RATES.error(
            decay_rates=len(decay_rates), got=len(steps)
        )
    if not steps:
        raise refusals.NO_BOUNDARIES.error()
    if not all(isinstance(step, numbers.Integral) for step in steps):
        raise refusals.FRACTIONAL_BOUNDARIES.error(got=steps)
    return [int(step) for step in steps]


def rises(boundaries: Sequence[int]) -> bool:
    """Return whether boundaries are sorted, so that each step is in only one range."""
    return list(boundaries) == sorted(boundaries)


def overlapping_ranges(boundaries: Sequence[int]) -> str:
    """Return the message for a step in two ranges of unsorted boundaries."""
    expected = "boundaries of which one range holds at this step"
    remedy = "sort them, with their decay_rates"
    return sentence("piecewise_constant", expected, f"{list(boundaries)}", remedy)


def refuse_limit_of_another_dtype(limit: Any, dtype: Any) -> None:
    """Strict: raise for a number as ``max_lr`` if the policy's dtype is not float32.

    Quirk ``policies_float16``.
    """
    if isinstance(limit, numbers.Number) and dtype_name(dtype) != "float32":
        raise refusals.LIMIT_UNDER_STRICT.error(got=limit)


def is_tensor(value: Any) -> bool:
    """Return whether a value is an array, tensor or variable of any framework."""
    return hasattr(value, "dtype") and not isinstance(value, numbers.Number)
