"""What the docstrings of all backends have in common, written once.

A backend's docstring has what is different there; that of the reference has the first
line, too. :func:`documented` completes it when the backend is imported, so ``help``
shows all of it, and so do the pages of the API, which are made without importing the
backend. What tf and keras3 alone share is in :mod:`lockstep.docstrings.tensorflow`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeVar

from lockstep.docstrings import tensorflow
from lockstep.docstrings.composition import complete
from lockstep.docstrings.texts import TEXTS
from lockstep.messages import nouns

__all__ = ["TEXTS", "complete", "documented", "text_of"]

Thing = TypeVar("Thing")

ON_TENSORFLOW = ("tf", "keras3")


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
    text = text_of(target.__qualname__, target.__module__)
    target.__doc__ = complete(target.__doc__, text, _parameters(target))
    return thing


def text_of(name: str, module: str) -> str:
    """Return the text of a class or function in the words of the module's backend.

    A method has that of its own class or else that of its name.

    Raises:
        KeyError: there is none.

    Example:
        >>> text_of("VariableClippingOptimizer", "lockstep.pytorch.clipping")[:56]
        "After each update, hold the norm of a parameter's rows t"
    """
    backend = f"{module}.".split(".")[1]
    kind = getattr(nouns, backend.upper(), nouns.REFERENCE).kind
    tables = [TEXTS, tensorflow.TEXTS] if backend in ON_TENSORFLOW else [TEXTS]
    keys = name, name.rpartition(".")[2]
    texts = [table[key] for table in tables for key in keys if key in table]
    if not texts:
        raise KeyError(name)
    text = reduce(lambda shared, own: complete(own, shared, None), texts)
    return text.replace("{variable}", kind).replace("{backend}", backend)


def _parameters(thing: Any) -> Sequence[str]:
    """Return the names of the arguments; of a class those of its constructor."""
    return tuple(inspect.signature(thing).parameters)
