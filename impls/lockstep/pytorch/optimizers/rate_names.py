"""Arguments of optimizers in torch's style: ``lr=``, and parameters first."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch import Tensor

from lockstep.checks import with_full_name
from lockstep.messages import pytorch as words
from lockstep.pytorch.tensors.rounding import plain

__all__ = ["TORCH_NAMES", "as_number", "torch_arguments", "with_torch_names"]

TORCH_NAMES = {"learning_rate": "lr"}
"""Name of a hyper-parameter -> its name in torch and in parameter groups."""

Init = TypeVar("Init", bound=Callable[..., None])


def torch_arguments(init: Init) -> Init:
    """Decorate a constructor to accept ``lr=`` for ``learning_rate=``.

    Raises:
        UnknownArgumentError: both names of the rate are given.
        NotASequenceError: the first argument is a number, not the parameters.
    """
    names = list(inspect.signature(init).parameters)

    @functools.wraps(init)
    def wrapper(self: Any, *args: Any, **arguments: Any) -> None:
        owner = self.spec.class_name
        first = args[0] if args else arguments.get("params")
        if isinstance(first, numbers.Number):
            raise words.NUMBER_FIRST.error(owner=owner, got=first)
        if "lr" in arguments:
            positional = dict(zip(names[1:], args, strict=False))
            with_full_name(owner, {**positional, "lr": arguments["lr"]})
            arguments = with_full_name(owner, arguments)
        init(self, *args, **arguments)

    return cast(Init, wrapper)


def with_torch_names(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of arguments with ``lr`` for the rate and with Python numbers.

    NumPy's numbers are converted because ``torch.load`` refuses them.
    """
    return {
        TORCH_NAMES.get(name, name): plain(value) for name, value in arguments.items()
    }


def as_number(value: Any) -> Any:
    """Return the number in a 0-d tensor; return anything else unchanged."""
    return value.item() if isinstance(value, Tensor) and value.dim() == 0 else value
