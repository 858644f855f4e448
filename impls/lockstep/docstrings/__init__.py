"""What the docstrings of all backends have in common, written once.

A backend's docstring has its first line and what is different there.
:func:`documented` completes it when the backend is imported, so ``help`` shows all of
it, and so do the pages of the API, which are made without importing the backend.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

from lockstep.docstrings.composition import complete
from lockstep.docstrings.texts import TEXTS
from lockstep.messages import nouns

__all__ = ["TEXTS", "complete", "documented", "text_of"]

Thing = TypeVar("Thing")


def documented(thing: Thing) -> Thing:
    """Complete the docstring of a class or function with the text of its name.

    Raises:
        KeyError: there is no text of this name.

    Example:
        >>> @documented
        ... def fixed_lr(global_step, learning_rate):
        ...     '''Return the rate.
        ...
        ...     In float32.'''
        >>> fixed_lr.__doc__.splitlines()[:5]
        ['Return the rate.', '', 'In float32.', '', 'Args:']
    """
    target: Any = thing
    text = text_of(target.__name__, target.__module__)
    target.__doc__ = complete(target.__doc__, text, _parameters(target))
    return thing


def text_of(name: str, module: str) -> str:
    """Return the text of a class or function in the words of the module's backend.

    Example:
        >>> text_of("VariableClippingOptimizer", "lockstep.pytorch.clipping")[:56]
        "After each update, hold the norm of a parameter's rows t"
    """
    backend = f"{module}.".split(".")[1]
    kind = getattr(nouns, backend.upper(), nouns.REFERENCE).kind
    return TEXTS[name].replace("{variable}", kind)


def _parameters(thing: Any) -> Sequence[str]:
    """Return the names of the arguments; of a class those of its constructor."""
    return tuple(inspect.signature(thing).parameters)
