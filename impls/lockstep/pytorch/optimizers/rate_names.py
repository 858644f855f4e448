"""What constructors of optimizers here take as torch does, and TensorFlow does not."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch import Tensor

from lockstep.messages import pytorch as words
from lockstep.messages.ranges import with_full_name
from lockstep.pytorch.tensors.rounding import plain

__all__ = ["TORCH_NAMES", "as_number", "torch_arguments", "with_torch_names"]

TORCH_NAMES = {"learning_rate": "lr"}
"""What torch calls a hyper-parameter, and its groups do."""

Init = TypeVar("Init", bound=Callable[..., None])


def torch_arguments(init: Init) -> Init:
    """Let a constructor take ``lr=`` for ``learning_rate=``, and parameters first.

    Raises:
        UnknownArgumentError: both names of the rate are given.
        NotASequenceError: a number stands where the parameters should.
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
    """Return a copy in which the rate is called ``lr``; numbers are Python's.

    ``torch.load`` refuses those of NumPy in what was saved.
    """
    return {
        TORCH_NAMES.get(name, name): plain(value) for name, value in arguments.items()
    }


def as_number(value: Any) -> Any:
    """Return the number in a 0-d tensor, and anything else as it is."""
    return value.item() if isinstance(value, Tensor) and value.dim() == 0 else value
