"""Learning-rate policies: the rate at a step, computed from the step alone.

A number of steps gives a number, a NumPy array of steps an array, and a torch tensor of
steps a tensor on its device (the step is read, which waits for a GPU). Every operation
is rounded to float32, as in the kernels of the original, or to the policy's ``dtype``.
Steps are optimizer steps, counted from 0. ``learning_rate`` may also be given as
``lr``. All policies come from OpenSeq2Seq (NVIDIA),
``open_seq2seq/optimizers/lr_policies.py``.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from lockstep.checks import FLOATS, dtype_name, number_of, with_full_name
from lockstep.errors import (
    DtypeError,
    NoBoundariesError,
    OutOfRangeError,
    UnsupportedError,
    unknown_name,
)

Policy = TypeVar("Policy", bound=Callable[..., Any])
Step = Any
"""An integer, or an array or torch tensor of integers."""
Rate = Any
"""A Python float, or an array or torch tensor of rates."""
Number = Any
"""A Python float, or a float64 array."""

PI = c_float(math.pi).value
FLOAT_RATE = ("exp_decay", "poly_decay", "inv_poly_decay")
"""Policies that refuse an integer rate under strict, as in the original."""


def not_negative(value: Any) -> bool:
    return 0 <= number_of(value) < math.inf


def positive(value: Any) -> bool:
    return 0 < number_of(value) < math.inf


def whole(value: Any) -> bool:
    is_count = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_count and int(value) >= 0


def is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


RANGES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "learning_rate": ("a finite rate >= 0", not_negative),
    "inv_poly_decay.learning_rate": ("a rate > 0", positive),
    "boundaries": ("a list of steps", is_list),
    "decay_rates": (
        "a list of factors >= 0",
        lambda v: is_list(v) and all(map(not_negative, v)),
    ),
    "steps_per_epoch": (
        "an integer > 0 or None",
        lambda v: v is None or (whole(v) and v > 0),
    ),
    "decay_steps": ("a number of steps > 0", positive),
    "decay_rate": ("a factor > 0", positive),
    "use_staircase_decay": ("a bool", lambda v: v in (0, 1)),
    "begin_decay_at": ("a step (an integer >= 0)", whole),
    "min_lr": ("a finite rate >= 0", not_negative),
    "power": ("a finite exponent > 0", positive),
    "cosine_decay.power": ("1 (poly_decay takes others)", lambda v: v == 1),
    "warmup_steps": ("a number of steps >= 0", not_negative),
    "transformer_policy.warmup_steps": ("a number of steps > 0", positive),
    "d_model": ("a width > 0", positive),
    "max_lr": ("a finite rate >= 0 or None", lambda v: v is None or not_negative(v)),
    "coefficient": ("a finite factor >= 0", not_negative),
    "dtype": (f"a dtype of {', '.join(FLOATS)}", lambda v: dtype_name(v) in FLOATS),
}
"""Name of an argument, or POLICY.NAME -> its range in words, and the test of it."""


def checked(policy: Policy) -> Policy:
    """Decorate a policy to check its step and its arguments, and to accept ``lr``."""
    name = policy.__name__
    names = list(inspect.signature(policy).parameters)[1:-1]

    @functools.wraps(policy)
    def call(global_step: Any, *args: Any, strict: bool = False, **kw: Any) -> Any:
        given = dict(zip(names, args, strict=False))
        if "lr" in kw:
            with_full_name(name, {**given, "lr": kw["lr"]})
            kw = with_full_name(name, kw)
        step = global_step
        # The values in a tensor may not be known yet.
        if isinstance(step, np.ndarray):
            fine = step.dtype.kind in "iu" and (strict or not np.any(step < 0))
        elif is_tensor(step):
            fine = strict or "int" in dtype_name(step.dtype)
        else:
            fine = whole(step) or (strict and isinstance(step, numbers.Integral))
        if not fine:
            raise OutOfRangeError(
                f"{name}: global_step: expected an integer >= 0 or a tensor of "
                f"integers, got {step!r}; count optimizer steps from 0."
            )
        check_ranges(name, {**given, **kw}, strict)
        return policy(global_step, *args, strict=strict, **kw)

    return cast(Policy, call)


def check_ranges(name: str, given: Mapping[str, Any], strict: bool) -> None:
    """Raise OutOfRangeError for an argument outside of its range, unless a tensor.

    Strict checks what the original does: the power of ``inv_poly_decay``, and that the
    rate is no integer in some policies.
    """
    for key, value in given.items():
        full = f"{name}.{key}"
        unchecked = strict and full != "inv_poly_decay.power"
        if unchecked or is_tensor(value):
            continue
        claim, admits = RANGES.get(full) or RANGES.get(key) or ("", None)
        if admits is not None and not admits(value):
            raise OutOfRangeError(
                f"{name}: {key}: expected {claim}, got {value!r}; give such a value."
            )
    rate = given.get("learning_rate")
    integer = isinstance(rate, numbers.Integral)
    if strict and name in FLOAT_RATE and integer:
        raise DtypeError(
            f"{name}: learning_rate: expected a float, as the original, got {rate!r}; "
            f"write {float(cast(Any, rate))} or leave strict off."
        )


def is_tensor(value: Any) -> bool:
    """Whether a value is an array, tensor or variable of any framework."""
    return hasattr(value, "dtype") and not isinstance(value, numbers.Number)


def on_arrays(rule: Policy) -> Policy:
    """Decorate a rule for numbers and for 1-d arrays to accept any array or tensor."""
    names = list(inspect.signature(rule).parameters)[1:-1]

    @functools.wraps(rule)
    def call(global_step: Any, *args: Any, **kw: Any) -> Any:
        if not is_tensor(global_step):
            return rule(int(global_step), *args, **kw)
        on_torch = not isinstance(global_step, np.ndarray)
        steps = global_step.cpu().numpy() if on_torch else global_step
        given = {**dict(zip(names, args, strict=False)), **kw}
        dtype = dtype_name(given.get("dtype", "float32"))
        with np.errstate(all="ignore"):
            rates = rule(np.int64(steps.reshape(-1)), *args, **kw)
            rates = np.broadcast_to(rates, steps.size).astype(dtype)
        rates = rates.reshape(steps.shape)
        if not on_torch:
            return rates[()]
        return sys.modules["torch"].from_numpy(rates).to(global_step.device)

    return cast(Policy, call)


@checked
def fixed_lr(global_step: Step, learning_rate: float, *, strict: bool = False) -> float:
    """Keep the rate as it is.

    The rate is ``learning_rate`` itself, whatever the step.

    Args:
        global_step: optimizer steps done so far.
        learning_rate: the rate.
        strict: no difference.

    Example:
        >>> from lockstep.reference import lr_policies
        >>> lr_policies.fixed_lr(7, 0.1)
        0.1
    """
    return learning_rate


@checked
@on_arrays
def piecewise_constant(
    global_step: Step,
    learning_rate: float,
    boundaries: Sequence[int],
    decay_rates: Sequence[float],
    steps_per_epoch: int | None = None,
    *,
    strict: bool = False,
) -> Rate:
    """Change the rate at some steps.

    Return rate c_k with b_(k-1) < s <= b_k, c_0 = 1: the boundary has the old rate.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate until the first boundary.
        boundaries: steps b_k, or epochs if ``steps_per_epoch`` is given.
        decay_rates: factors c_k of ``learning_rate`` after each boundary.
        steps_per_epoch: optimizer steps in an epoch.
        strict: check nothing but the boundaries.

    Raises:
        NoBoundariesError: ``boundaries`` is empty.
        OutOfRangeError: not one rate per boundary, boundaries that are no integers, or
            a step in two ranges of unsorted boundaries.

    Example:
        >>> import numpy as np
        >>> from lockstep.reference import lr_policies
        >>> steps = np.array([10, 11])
        >>> lr_policies.piecewise_constant(steps, 1.0, [10], [0.5]).tolist()
        [1.0, 0.5]
    """
    ends = step_boundaries(boundaries, decay_rates, steps_per_epoch)
    step = global_step
    # A step on a boundary has the old rate, with and without strict.
    holds = [step <= ends[0]]
    holds += [(step > low) & (step <= high) for low, high in itertools.pairwise(ends)]
    holds += [step > ends[-1]]
    if np.any(np.sum(holds, axis=0) != 1):
        raise OutOfRangeError(overlapping_ranges(ends))
    rate: Number = 0.0
    for inside, factor in zip(holds, [1.0, *decay_rates], strict=True):
        rate = choose(inside, rounded(learning_rate * factor), rate)
    return rate


@checked
@on_arrays
def exp_decay(
    global_step: Step,
    learning_rate: float,
    decay_steps: float,
    decay_rate: float,
    use_staircase_decay: bool,
    begin_decay_at: int = 0,
    min_lr: float = 0.0,
    *,
    strict: bool = False,
) -> Rate:
    """Decay the rate exponentially.

    Return max(min_lr, rate decay_rate^p), p = (s - begin) / decay_steps, 0 before.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps in which the rate decays once by ``decay_rate``.
        decay_rate: the factor.
        use_staircase_decay: round p down, so that the rate falls in stairs.
        begin_decay_at: the first step of the decay.
        min_lr: the floor, which also holds before the decay.
        strict: refuse an integer rate, check nothing else.

    Example:
        >>> from lockstep.reference import lr_policies
        >>> lr_policies.exp_decay(20, 1.0, 10, 0.5, False)
        0.25
    """
    step, rate, least = global_step, rounded(learning_rate), rounded(min_lr)
    progress = divided(rounded(step - begin_decay_at), rounded(decay_steps))
    if use_staircase_decay:
        progress = np.floor(progress)
    decayed = rounded(rate * power_of(rounded(decay_rate), progress))
    chosen = choose(step < begin_decay_at, rate, decayed)
    return choose(chosen < least, least, chosen)


@checked
@on_arrays
def poly_decay(
    global_step: Step,
    learning_rate: float,
    decay_steps: float,
    power: float = 1.0,
    begin_decay_at: int = 0,
    min_lr: float = 0.0,
    warmup_steps: float = 0,
    *,
    strict: bool = False,
) -> Rate:
    """Decay the rate along a polynomial.

    Return (base - min_lr) (1 - p)^power + min_lr.

    The progress is p = min(s - begin, decay_steps) / decay_steps.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps from the rate down to ``min_lr``.
        power: the exponent; 1 is a straight line.
        begin_decay_at: the first step of the decay; before it the rate is base.
        min_lr: the rate at the end.
        warmup_steps: base = rate s / warmup_steps before this step, then the rate.
        strict: refuse an integer rate, check nothing else.

    As in the original, the decay may begin before the warm-up ends. It then raises a
    base below ``min_lr``.

    Example:
        >>> from lockstep.reference import lr_policies
        >>> lr_policies.poly_decay(5, 1.0, 10)
        0.5
    """
    step, least = global_step, rounded(min_lr)
    base = warmed_up(step, learning_rate, warmup_steps)
    progress = decay_progress(step, decay_steps, begin_decay_at)
    remaining = power_of(rounded(1.0 - progress), rounded(power))
    decayed = rounded(rounded(rounded(base - least) * remaining) + least)
    return choose(step < begin_decay_at, base, decayed)


@checked
@on_arrays
def cosine_decay(
    global_step: Step,
    learning_rate: float,
    decay_steps: float,
    power: float = 1.0,
    begin_decay_at: int = 0,
    min_lr: float = 0.0,
    warmup_steps: float = 0,
    *,
    strict: bool = False,
) -> Rate:
    """Decay the rate along half a cosine.

    Return (base - min_lr) c + min_lr, c = (1 + cos(pi p)) / 2, p as in poly_decay.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps from the rate down to ``min_lr``.
        power: 1 (strict: anything, ignored).
        begin_decay_at: the first step of the decay; before it the rate is base.
        min_lr: the rate at the end (strict: as a fraction of the rate).
        warmup_steps: as in ``poly_decay``.
        strict: base ((1 - min_lr) c + min_lr), the original's rule.

    Paper: Loshchilov and Hutter, SGDR, 2016.

    Example:
        >>> from lockstep.reference import lr_policies
        >>> lr_policies.cosine_decay(5, 1.0, 10, min_lr=0.5)
        0.75
    """
    step, least = global_step, rounded(min_lr)
    base = warmed_up(step, learning_rate, warmup_steps)
    progress = decay_progress(step, decay_steps, begin_decay_at)
    wave = rounded(np.cos(rounded(PI * progress)))
    share = 0.5 * rounded(1.0 + wave)
    if strict:
        fraction = rounded(rounded(rounded(1 - min_lr) * share) + least)
        decayed = rounded(base * fraction)
    else:
        decayed = rounded(rounded(rounded(base - least) * share) + least)
    return choose(step < begin_decay_at, base, decayed)


@checked
@on_arrays
def inv_poly_decay(
    global_step: Step,
    learning_rate: float,
    decay_steps: float,
    min_lr: float,
    power: float = 1.0,
    begin_decay_at: int = 0,
    warmup_steps: float = 0,
    name: str = "learning_rate",
    *,
    strict: bool = False,
) -> Rate:
    """Decay the rate as an inverse power of the step.

    Return max(m, base / (1 + k (s - begin))^power).

    The growth is k = ((rate / m)^(1 / power) - 1) / decay_steps, so that m is reached
    ``decay_steps`` after the beginning.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps from the rate down to m.
        min_lr: the floor; m is ``min_lr``, but at least 1e-8 and at most the rate.
        power: the exponent.
        begin_decay_at: the first step of the decay; before it the rate is base.
        warmup_steps: base = rate s / warmup_steps before this step, then the rate.
        name: of the operation in a graph; without effect here.
        strict: ignore ``begin_decay_at``, ``warmup_steps`` and the floor after
            ``decay_steps``, as the original does.

    Raises:
        OutOfRangeError: ``power`` is not positive.

    Example:
        >>> from lockstep.reference import lr_policies
        >>> lr_policies.inv_poly_decay(1, 1.0, 2, 0.5)
        0.6666666865348816
    """
    step, exponent = global_step, rounded(power)
    rate, least = rounded(learning_rate), min(max(min_lr, 1e-8), learning_rate)
    # In float64 and rounded once, because the original uses Python floats here.
    ratio = divided(learning_rate, least, np.float64)
    largest = power_of(ratio, 1.0 / power, np.float64)
    growth = divided(largest - 1.0, decay_steps)
    if strict:
        divisor = rounded(1.0 + rounded(growth * rounded(step)))
        return divided(rate, power_of(divisor, exponent))
    base = warmed_up(step, learning_rate, warmup_steps)
    elapsed = rounded(choose(step < begin_decay_at, 0, step - begin_decay_at))
    divisor = rounded(1.0 + rounded(growth * elapsed))
    decayed = divided(base, power_of(divisor, exponent))
    floored = choose(decayed < rounded(least), rounded(least), decayed)
    return choose(step < begin_decay_at, base, floored)


@checked
@on_arrays
def transformer_policy(
    global_step: Step,
    learning_rate: float,
    d_model: float,
    warmup_steps: float,
    max_lr: float | None = None,
    coefficient: float = 1.0,
    dtype: Any = "float32",
    *,
    strict: bool = False,
) -> Rate:
    """Raise the rate linearly, then lower it with the root of the step.

    Return rate a d_model^-0.5 min((s + 1) w^-1.5, (s + 1)^-0.5).

    Here a is ``coefficient`` and w is ``warmup_steps``.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: a factor.
        d_model: the width of the model.
        warmup_steps: steps until the peak.
        max_lr: the ceiling, if any.
        coefficient: another factor.
        dtype: the dtype of all arithmetic. float16 is coarse and cannot hold large
            steps: from s = 65519 on the rate is 0.
        strict: refuse ``max_lr`` where ``dtype`` is not float32, as the original does.

    Paper: Vaswani and others, Attention is all you need, 2017, section 5.3.

    Example:
        >>> from lockstep.reference import lr_policies
        >>> lr_policies.transformer_policy(3, 2.0, 4, 4)
        0.5
    """
    if strict:
        refuse_limit_of_another_dtype(max_lr, dtype)
    if dtype_name(dtype) == "bfloat16":
        raise UnsupportedError(
            "transformer_policy: dtype: expected float16, float32 or float64 on this "
            "backend, got bfloat16; use float32 and round the rate."
        )
    kind = np.dtype(dtype_name(dtype)).type
    step = rounded(rounded(global_step, kind) + 1.0, kind)
    rising = rounded(step * power_of(rounded(warmup_steps, kind), -1.5, kind), kind)
    falling = power_of(step, -0.5, kind)
    shape = choose(falling < rising, falling, rising)
    scaled = rounded(rounded(coefficient * d_model**-0.5, kind) * shape, kind)
    rate = rounded(scaled * rounded(learning_rate, kind), kind)
    if max_lr is None:
        return rate
    limit = rounded(max_lr, kind)
    return choose(limit < rate, limit, rate)


POLICIES: Mapping[str, Callable[..., Any]] = {
    policy.__name__: policy
    for policy in (
        fixed_lr,
        piecewise_constant,
        exp_decay,
        poly_decay,
        cosine_decay,
        inv_poly_decay,
        transformer_policy,
    )
}
"""The policies by name."""


def bind(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a policy after checking that they are its arguments.

    Raises:
        UnknownNameError: there is no such policy, or it has no argument of a name; the
            message suggests the nearest.
        OutOfRangeError: an argument without a default is missing.
    """
    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES)
    _, *parameters = inspect.signature(POLICIES[name]).parameters.values()
    known = [parameter.name for parameter in parameters]
    for key in given:
        if key not in known:
            raise unknown_name(f"parameter of {name}", key, known)
    for parameter in parameters:
        key = parameter.name
        if parameter.default is inspect.Parameter.empty and key not in given:
            claim, _ = RANGES.get(f"{name}.{key}") or RANGES[key]
            raise OutOfRangeError(
                f"{name}: {key}: expected {claim}, got nothing; add {key}."
            )
    return dict(given)


def strict_module(module: ModuleType, name: str) -> ModuleType:
    """Return a module with the policies of ``module`` bound to ``strict=True``.

    Old code imports single policies from it by name, so ``import`` must find it.
    """
    strict = ModuleType(name, f"The policies of {module.__name__}, strict.")
    for policy in POLICIES:
        setattr(strict, policy, _bound(getattr(module, policy), policy, name))
    strict.__dict__["__all__"] = list(POLICIES)
    sys.modules[name] = strict
    return strict


def _bound(function: Policy, policy: str, module: str) -> Policy:
    """Return a policy with ``strict=True`` and the original's other arguments."""
    *parameters, _ = inspect.signature(POLICIES[policy]).parameters.values()
    plain = [each.replace(annotation=each.empty) for each in parameters]
    signature = inspect.Signature(plain)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(**signature.bind(*args, **kwargs).arguments, strict=True)

    # Pickle finds a function by these attributes.
    call.__module__, call.__qualname__ = module, policy
    vars(call)["__signature__"] = signature
    return cast("Policy", call)


def warmed_up(step: Any, learning_rate: float, warmup_steps: float) -> Number:
    """Return the rate during a linear warm-up, then the constant rate."""
    rate = rounded(learning_rate)
    if warmup_steps <= 0:
        return rate
    rising = rounded(rounded(rate * rounded(step)) / rounded(warmup_steps))
    return choose(step < warmup_steps, rising, rate)


def decay_progress(step: Any, decay_steps: float, begin_decay_at: int) -> Number:
    """Return the completed fraction of ``decay_steps``, at most 1."""
    done, length = rounded(step - begin_decay_at), rounded(decay_steps)
    return divided(choose(done < length, done, length), length)


def step_boundaries(
    boundaries: Sequence[int], decay_rates: Sequence[float], steps_per_epoch: int | None
) -> list[int]:
    """Return the boundaries in steps; raise if there are none, or not one per rate."""
    steps = [b if steps_per_epoch is None else steps_per_epoch * b for b in boundaries]
    if len(steps) != len(decay_rates):
        raise OutOfRangeError(
            "piecewise_constant: boundaries: expected one for each of the "
            f"{len(decay_rates)} decay_rates, got {len(steps)}; the rate before the "
            "first boundary needs no entry."
        )
    if not steps:
        raise NoBoundariesError(
            "piecewise_constant: boundaries: expected at least one, got none; use "
            "fixed_lr for a rate that never changes."
        )
    if not all(isinstance(step, numbers.Integral) for step in steps):
        raise OutOfRangeError(
            f"piecewise_constant: boundaries: expected integers, got {steps}; round "
            "them to steps."
        )
    return [int(step) for step in steps]


def overlapping_ranges(boundaries: Sequence[int]) -> str:
    """Return the message for a step in two ranges of unsorted boundaries."""
    return (
        "piecewise_constant: expected boundaries of which one range holds at this "
        f"step, got {list(boundaries)}; sort them, with their decay_rates."
    )


def refuse_limit_of_another_dtype(limit: Any, dtype: Any) -> None:
    """Strict: raise for a number as ``max_lr`` if the policy's dtype is not float32."""
    if isinstance(limit, numbers.Number) and dtype_name(dtype) != "float32":
        raise DtypeError(
            "transformer_policy: max_lr: expected no max_lr where dtype is not "
            f"float32, as in the original, got {limit!r}; leave strict off."
        )


def rounded(number: Any, dtype: Any = np.float32) -> Number:
    """Round to ``dtype``. Numbers that are too large become infinite."""
    if isinstance(number, np.ndarray):
        return number.astype(dtype).astype(np.float64)
    if dtype is np.float32:
        return c_float(number).value  # A tenth of the time that NumPy needs.
    with np.errstate(over="ignore"):
        return float(dtype(number))


def choose(condition: Any, yes: Number, no: Number) -> Number:
    """Return ``yes`` where the condition holds, else ``no``."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def divided(dividend: Number, divisor: Number, dtype: Any = np.float32) -> Number:
    """Return a quotient, rounded; a number by 0 is infinite or NaN, as in an array."""
    if isinstance(divisor, np.ndarray) or divisor:
        return rounded(dividend / divisor, dtype)
    with np.errstate(all="ignore"):
        return rounded(np.divide(dividend, divisor), dtype)


def power_of(base: Number, exponent: Number, dtype: Any = np.float32) -> Number:
    """Return base^exponent, computed in float64 and rounded."""
    if isinstance(base, np.ndarray) or isinstance(exponent, np.ndarray):
        return rounded(np.power(base, exponent), dtype)
    try:
        return rounded(math.pow(base, exponent), dtype)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan if base else math.inf
