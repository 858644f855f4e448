"""Checks of the arguments of ``optimize_loss``, and their messages."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lockstep.checks import dtype_name, number_of
from lockstep.errors import (
    NotASequenceError,
    RateFunctionError,
    UnsupportedError,
    VarListError,
    with_article,
)
from lockstep.messages.step import refusals
from lockstep.messages.step.reduction import check_engine
from lockstep.messages.step.training_step import OWNER

__all__ = [
    "check_flag",
    "check_given",
    "check_model",
    "check_once",
    "check_rate_function",
    "listed",
    "not_a_variable",
    "rate_function",
    "untrainable",
    "wrong_answer",
]


RATE_FUNCTION = "a function from the steps to the rate"


def check_given(arguments_unchecked: bool, **given: Any) -> None:
    """Raise for an argument of the wrong kind; strict: check nothing.

    Raises:
        RateFunctionError: ``learning_rate_decay_fn`` is neither a rate nor a function
            of the step.
        OutOfRangeError: ``skip_update_ph`` is no flag, ``optimizer_params`` or
            ``loss_scaling_params`` is no mapping, ``reduction`` lacks a method, or
            ``model`` is a number or a text.
    """
    if not arguments_unchecked:
        for name, value in given.items():
            CHECKS[name](name, value)


def rate_function(given: Any, arguments_unchecked: bool) -> Callable[[Any], Any]:
    """Return a function from the step to the rate; strict: return ``given``.

    A constant rate may be given as a number.
    """
    if arguments_unchecked or callable(given):
        return given  # type: ignore[no-any-return]
    return functools.partial(constant_rate, given)


def constant_rate(rate: Any, global_step: Any) -> Any:
    """Return ``rate`` at every step. It is a function of the module, for pickle."""
    return rate


def check_rate_or_function(name: str, given: Any) -> None:
    """Raise unless ``given`` is a number or a function of the step."""
    if callable(given):
        check_rate_function(name, given)
    elif math.isnan(number_of(given)):
        raise no_rate(f"{OWNER}: {name}", f"{RATE_FUNCTION}, or a number", given)


def check_rate_function(name: str, function: Any, owner: str = OWNER) -> None:
    """Raise unless ``function`` can be called with the step alone."""
    subject = f"{owner}: {name}"
    if not callable(function):
        raise no_rate(subject, RATE_FUNCTION, function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(0)
    except TypeError as error:
        needed = needed_of(signature)[1:]
        which = f"needs {', '.join(needed)} too" if needed else "does not take the step"
        raise refusals.RATE_FUNCTION_ARGUMENTS.error(
            owner=owner,
            name=name,
            got=getattr(function, "__name__", "one"),
            which=which,
        ) from error


def no_rate(subject: str, expected: str, got: Any) -> RateFunctionError:
    """Build the error for a rate that is neither a function nor a number."""
    simple = got is None or isinstance(got, bool | int | float | str)
    shown = repr(got) if simple else with_article(type(got).__name__)
    return refusals.NO_RATE.error(subject=subject, expected=expected, got=shown)


def needed_of(signature: inspect.Signature) -> list[str]:
    """Return the names of the arguments without a default."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in several
    ]


def check_flag(name: str, flag: Any, answered: bool = False) -> None:
    """Raise unless a flag is None, a bool, a 0-d bool tensor, or a function.

    ``answered``: whether the flag is a function's result, and so cannot be a function.
    """
    if flag is None or isinstance(flag, bool) or (callable(flag) and not answered):
        return
    shape, dtype = getattr(flag, "shape", None), getattr(flag, "dtype", None)
    if shape is not None and dtype_name(dtype).removesuffix("_ref") == "bool":
        rank = shape.rank if hasattr(shape, "rank") else len(shape)
        if not rank:
            return
    raise refusals.BAD_FLAG.error(name=name, got=flag)


def check_mapping(name: str, params: Any) -> None:
    """Raise unless ``params`` is None or a mapping from names to arguments."""
    if params is not None and not isinstance(params, Mapping):
        example = {"optimizer_params": {"momentum": 0.9}}
        raise refusals.NOT_A_DICT.error(
            name=name, got=params, example=example.get(name, {"step_window": 2000})
        )


def check_reduction(name: str, reduction: Any) -> None:
    """Raise for a reduction that lacks an attribute."""
    check_engine(reduction, f"{OWNER}: {name}")


def check_model(name: str, model: Any) -> None:
    """Raise if ``model`` is a number or a text."""
    if isinstance(model, bool | int | float | str):
        raise refusals.NOT_A_MODEL.error(name=name, got=model)


CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "learning_rate_decay_fn": check_rate_or_function,
    "loss_scaling_params": check_mapping,
    "model": check_model,
    "optimizer_params": check_mapping,
    "reduction": check_reduction,
    "skip_update_ph": check_flag,
}
"""Argument -> the function that checks it."""


def listed(var_list: Any, one: type[Any]) -> list[Any]:
    """Return ``var_list`` as a list; raise if it is no iterable or a single variable.

    ``one``: the class of variables.
    """
    if isinstance(var_list, str | one) or not isinstance(var_list, Iterable):
        remedy = "put it into a list" if isinstance(var_list, one) else "list them"
        raise refusals.VARIABLES_NOT_LISTED.error(
            got=type(var_list).__name__, remedy=remedy
        )
    return list(var_list)


def not_a_variable(expected: str, entry: Any) -> VarListError:
    """Build the error for an entry of ``var_list`` that is no variable."""
    got = with_article(type(entry).__name__)
    if isinstance(entry, tuple):
        got = f"({', '.join(type(part).__name__ for part in entry)})"
    return refusals.NOT_A_VARIABLE.error(expected=expected, got=got)


def check_once(variables: Iterable[Any], name_of: Callable[[Any], str]) -> None:
    """Raise if a variable is listed twice."""
    ids: set[int] = set()
    for variable in variables:
        if id(variable) in ids:
            raise refusals.LISTED_TWICE.error(got=name_of(variable))
        ids.add(id(variable))


def untrainable(model: Any, expected: str, attribute: str) -> UnsupportedError:
    """Build the error for a model without parameters.

    ``attribute``: the attribute that would list them.
    """
    kind = with_article(type(model).__name__)
    got = f"{kind} without any" if hasattr(model, attribute) else kind
    return refusals.UNTRAINABLE.error(expected=expected, got=got)


def wrong_answer(gradients: Any, count: int) -> NotASequenceError | UnsupportedError:
    """Build the error for a reference loss without a gradient for each variable."""
    if isinstance(gradients, list):
        return refusals.OTHER_NUMBER_OF_GRADIENTS.error(count=count, got=len(gradients))
    return refusals.ANSWER_NOT_A_LIST.error(count=count, got=type(gradients).__name__)
