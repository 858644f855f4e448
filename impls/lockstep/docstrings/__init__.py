"""Docstring texts that all backends share.

A backend's docstring contains only what differs there; the reference's also has the
first line. :func:`documented` adds the shared text when the backend is imported, so
``help`` shows the complete docstring. The API pages show it too; they are generated
without importing the backend. Texts that only tf and keras3 share are in
:mod:`lockstep.docstrings.tensorflow`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeVar

from lockstep.docstrings import (
    clipping,
    masters,
    multitask,
    optimizers,
    scaling,
    step,
    tensorflow,
    workers,
)
from lockstep.docstrings.composition import complete
from lockstep.interface import Wrapper
from lockstep.messages import nouns

__all__ = ["METHODS", "TEXTS", "complete", "documented", "text_of"]

Thing = TypeVar("Thing")

METHODS: dict[str, str] = {
    name: inspect.getdoc(getattr(Wrapper, name)) or ""
    for name in ("apply_gradients", "compute_gradients", "get_name", "minimize")
}
"""Name of a method -> its docstring in the interface."""

TEXTS: dict[str, str] = {
    **clipping.TEXTS,
    **masters.TEXTS,
    **multitask.TEXTS,
    **optimizers.TEXTS,
    **scaling.TEXTS,
    **step.TEXTS,
    **workers.TEXTS,
    **METHODS,
}
"""Name of a class or function -> the docstring text that all backends share."""

ON_TENSORFLOW = ("tf", "keras3")


def documented(thing: Thing) -> Thing:
    """Complete the docstring of a class or function with the shared text for its name.

    Raises:
        KeyError: there is no text for this name.
    """
    target: Any = thing
    text = text_of(target.__qualname__, target.__module__)
    target.__doc__ = complete(target.__doc__, text, _parameters(target))
    return thing


def text_of(name: str, module: str) -> str:
    """Return the shared text of a class or function, with the backend's terms.

    For a method this is the text of its class and name, or else of its name alone.

    Raises:
        KeyError: there is no text for this name.

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
    """Return the names of the arguments of a function or of a class's constructor."""
    return tuple(inspect.signature(thing).parameters)
