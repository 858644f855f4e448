"""Until the last importer has moved: see :mod:`lockstep.pytorch.wrapper`."""

import inspect

from lockstep.pytorch.wrapper import *  # noqa: F403


def restore_numbers(optimizer, saved):
    """Do nothing: numbers are loaded as torch loads them."""


def needs_closure(optimizer):
    """Whether ``step`` requires a closure, which it then calls several times."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
