"""Checks of the optimizer argument of ``optimize_loss``: names and arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockstep.errors import (
    NotAnOptimizerError,
    UnknownArgumentError,
    nearest,
    unknown_name,
)
from lockstep.messages.step import refusals
from lockstep.messages.step.training_step import OWNER
from lockstep.optimizers import NOVOGRAD, OPTIMIZERS, REQUIRED

__all__ = [
    "CLASS_NAMES",
    "DECAYING",
    "arguments_for",
    "check_maker",
    "instance",
    "rate_argument",
]

CLASS_NAMES: Mapping[str, str] = {
    "Adagrad": "AdagradOptimizer",
    "Adam": "AdamOptimizer",
    "Ftrl": "FtrlOptimizer",
    "Momentum": "MomentumOptimizer",
    "RMSProp": "RMSPropOptimizer",
    "SGD": "GradientDescentOptimizer",
    "AdamW": "AdamWOptimizer",
}
"""Name in ``OPTIMIZER_CLS_NAMES`` -> the name of its class."""
DECAYING = "AdamW"
"""The name whose ``weight_decay`` is multiplied by the rate."""
ALWAYS = ("use_locking", "name")
"""Arguments of every optimizer."""
RATES = {"learning_rate", "lr"}
"""Names of the learning-rate argument."""


def arguments_for(
    optimizer: Any,
    optimizer_params: Mapping[str, Any] | None,
    arguments_unchecked: bool,
    host: str,
) -> dict[str, Any]:
    """Return a checked copy of the arguments of an optimizer that is given by name.

    For a class, the arguments are copied unchecked. ``host``: the backend's name.

    Raises:
        UnknownNameError: no optimizer has this name, or the optimizer has no such
            argument (then a TypeError too).
        MissingArgumentError: a required argument is missing.
        MissingDecayError: ``weight_decay`` of AdamW is missing.
        OutOfRangeError: a value is out of range.
    """
    arguments = dict(optimizer_params or {})
    if not isinstance(optimizer, str):
        for name in RATES.intersection(arguments):
            raise unknown_argument(name_of(optimizer), name, ())
        return arguments
    if optimizer == NOVOGRAD.name:
        names = ", ".join(sorted(CLASS_NAMES))
        raise refusals.NO_NAME.error(names=names, got=optimizer, backend=host)
    if optimizer not in CLASS_NAMES:
        raise unknown_name(f"{OWNER}: optimizer", optimizer, CLASS_NAMES)
    if optimizer == DECAYING and "weight_decay" not in arguments:
        raise refusals.MISSING_DECAY.error()
    spec = OPTIMIZERS[CLASS_NAMES[optimizer].removesuffix("Optimizer")]
    known = {p.name: p for p in spec.parameters if p.name != "learning_rate"}
    for name in arguments:
        if name not in known and name not in ALWAYS:
            raise unknown_argument(optimizer, name, (*known, *ALWAYS))
    for name, parameter in known.items():
        if name not in arguments and parameter.default is REQUIRED:
            raise refusals.MISSING_ARGUMENT.error(optimizer=optimizer, name=name)
        if (
            name in arguments
            and not callable(arguments[name])
            and not arguments_unchecked
        ):
            parameter.check(f"{OWNER}: {optimizer}", arguments[name])
    return arguments


def rate_argument(make: Callable[..., Any]) -> str:
    """Return the name of a class's rate argument: ``learning_rate``, or ``lr``."""
    spec = getattr(make, "spec", None)
    if spec is not None:
        names = {parameter.name for parameter in spec.parameters}
        return "lr" if "lr" in names else "learning_rate"
    try:
        return "lr" if "lr" in inspect.signature(make).parameters else "learning_rate"
    except (TypeError, ValueError):
        return "learning_rate"


def name_of(make: Any) -> str:
    """Return the name of a class or a function, or of the class of anything else."""
    return str(getattr(make, "__name__", type(make).__name__))


def check_maker(make: Callable[..., Any]) -> None:
    """Raise for a class or a function without an argument for the learning rate."""
    rate = rate_argument(make)
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return
    kinds = [parameter.kind for parameter in parameters.values()]
    if rate in parameters or inspect.Parameter.VAR_KEYWORD in kinds:
        return
    got = name_of(make)
    raise refusals.NO_RATE_ARGUMENT.error(got=got)


def unknown_argument(
    optimizer: str, name: str, known: Sequence[str]
) -> UnknownArgumentError:
    """Build the error for an unknown argument of an optimizer, or for its rate."""
    close = nearest(name, known)
    remedy = f"did you mean {close!r}?" if close else "choose one of them"
    if name in RATES:
        remedy = "let learning_rate_decay_fn return it"
    expected = f"one of {', '.join(known)}" if known else "no rate"
    text = refusals.UNKNOWN_ARGUMENT.text(
        optimizer=optimizer, expected=expected, got=name, remedy=remedy
    )
    return UnknownArgumentError(text.removesuffix(".") if "?" in remedy else text)


def instance(optimizer: object, arguments: Mapping[str, Any]) -> NotAnOptimizerError:
    """Build the error for an instance under strict, or for one with arguments.

    Quirk ``optimize_loss_instance``.
    """
    beside = f" beside {', '.join(arguments)}" if arguments else ""
    return refusals.INSTANCE.error(got=type(optimizer).__name__, beside=beside)
