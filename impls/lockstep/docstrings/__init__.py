"""What the docstrings of all backends have in common, written once.

A backend's docstring has only what is different there. :func:`documented` completes it
when the backend is imported, so ``help`` shows all of it, and so do the pages of the
API, which are made without importing the backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from lockstep.docstrings.composition import complete
from lockstep.docstrings.texts import TEXTS

__all__ = ["TEXTS", "complete", "documented"]

Thing = TypeVar("Thing")


def documented(thing: Thing) -> Thing:
    """Complete the docstring of a class or function with the text of its name.

    Raises:
        KeyError: there is no text of this name.

    Example:
        >>> @documented
        ... def fixed_lr(global_step, learning_rate):
        ...     '''...
        ...
        ...     In float32.'''
        >>> fixed_lr.__doc__.splitlines()[:3]
        ['Return ``learning_rate`` itself, whatever the step.', '', 'In float32.']
    """
    target: Any = thing
    text = TEXTS[target.__name__]
    target.__doc__ = complete(target.__doc__, text, _parameters(target))
    return thing


def _parameters(thing: Any) -> Sequence[str]:
    """Return the names of the arguments; of a class those of its constructor."""
    is_class = isinstance(thing, type)
    code = (thing.__init__ if is_class else thing).__code__
    count = code.co_argcount + code.co_kwonlyargcount
    return tuple(code.co_varnames[:count])
