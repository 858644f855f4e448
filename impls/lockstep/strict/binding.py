"""Binding of strict names: they accept the original's arguments and no others.

A constructor or function with an empty body defines the original's signature.
``inspect.signature`` and type checkers show it. Strict modules need not forward
arguments by hand.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from lockstep.errors import (
    MissingArgumentError,
    UnknownArgumentError,
    sentence,
)

__all__ = ["bound", "classes_in", "forwards"]

P = ParamSpec("P")
Own = TypeVar("Own")
Result = TypeVar("Result")
SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def forwards(
    init: Callable[Concatenate[Own, P], None],
) -> Callable[Concatenate[Own, P], None]:
    """Return a constructor that calls the next class's one with ``strict=True``.

    Arguments are passed by name, with the defaults of ``init``, whose body never runs.

    Example:
        >>> class Wrapper:
        ...     def __init__(self, opt, strict=False, clip_norm=None):
        ...         self.opt, self.strict = opt, strict
        >>> class Strict(Wrapper):
        ...     @forwards
        ...     def __init__(self, opt): ...
        >>> Strict(3).strict, str(inspect.signature(Strict))
        (True, '(opt)')
    """
    signature = inspect.signature(init)

    @functools.wraps(init)
    def forward(self: Any, *args: Any, **kwargs: Any) -> None:
        classes: tuple[Any, ...] = type(self).__mro__
        owner = next(c for c in classes if vars(c).get("__init__") is forward)
        strict = (c for c in classes if c.__module__.endswith(".strict"))
        cls = next(strict, type(self))
        call = bind(signature, (self, *args), kwargs, cls.__module__, cls.__name__)
        call.apply_defaults()
        _, *arguments = by_name(call).items()
        super(owner, self).__init__(**dict(arguments), strict=True)

    return cast("Callable[Concatenate[Own, P], None]", forward)


def bound(
    function: Callable[..., Result], original: Callable[P, Any], module: str
) -> Callable[P, Result]:
    """Return a function of ``module`` that calls ``function`` with ``strict=True``.

    It has the signature, name and docstring of ``original``, which is never called.
    """
    signature, name = inspect.signature(original), original.__name__

    @functools.wraps(original)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        arguments = by_name(bind(signature, args, kwargs, module, name))
        return function(**arguments, strict=True)

    # Pickle finds a function by these attributes.
    call.__module__, call.__qualname__ = module, name
    return call


def classes_in(
    module: Mapping[str, Any], default: Mapping[str, Any]
) -> dict[str, Callable[..., Any]]:
    """Return the strict module's classes for the optimizer names of ``optimize_loss``.

    Args:
        module: the names in the strict module.
        default: name of an optimizer -> its class by default.

    Example:
        >>> from lockstep.reference import OPTIMIZER_CLS_NAMES, strict
        >>> classes = classes_in(vars(strict), OPTIMIZER_CLS_NAMES)
        >>> classes["SGD"] is strict.GradientDescentOptimizer
        True
    """
    return {name: module[cls.__name__] for name, cls in default.items()}


def bind(
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    module: str,
    name: str,
) -> inspect.BoundArguments:
    """Bind the arguments of a call.

    Raises:
        UnknownArgumentError: a TypeError; the original does not have an argument.
        MissingArgumentError: a TypeError; an argument without a default is missing.
    """
    refuse_others(signature, args, kwargs, module, name)
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        expected = f"the arguments {listed(signature)}"
        remedy = "pass each of them once"
        text = sentence(f"{module}.{name}", expected, str(error), remedy)
        raise MissingArgumentError(text) from None


def by_name(call: inspect.BoundArguments) -> dict[str, Any]:
    """Return all arguments of a call by name, including those in ``**options``."""
    arguments: dict[str, Any] = {}
    for name, value in call.arguments.items():
        kind = call.signature.parameters[name].kind
        several = kind is inspect.Parameter.VAR_KEYWORD
        arguments.update(value if several else {name: value})
    return arguments


def refuse_others(
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    module: str,
    name: str,
) -> None:
    """Raise for arguments that the original does not have."""
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    unknown = [
        key
        for key in kwargs
        if key not in signature.parameters and (key == "strict" or not takes_any)
    ]
    count = sum(kind not in SEVERAL for kind in kinds)
    if not unknown and len(args) <= count:
        return
    got = ", ".join(unknown)
    if not unknown:
        # The first argument of a constructor is the object itself.
        extra = list(signature.parameters)[:1] == ["self"]
        got = f"{len(args) - extra} arguments by position"
    default = f"{module.replace('.strict', '')}.{name}"
    remedy = f"use {default} for options that the original does not have"
    expected = f"only the original's arguments ({listed(signature)})"
    text = sentence(f"{module}.{name}", expected, got, remedy)
    raise UnknownArgumentError(text)


def listed(signature: inspect.Signature) -> str:
    """Return the names of the arguments in order, without ``self``."""
    return ", ".join(name for name in signature.parameters if name != "self")
