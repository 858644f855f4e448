"""The modules of a folder, found there, so that no list names them a second time."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from types import ModuleType


def modules_in(package: str, first: Sequence[str] = ()) -> list[ModuleType]:
    """Import the modules of a package and of its folders, sorted by name.

    Args:
        package: its full name. Its ``__init__`` may call this function.
        first: the names, within the package, of modules that come first, in this order.

    Example:
        >>> modules = modules_in("harness.parity.families", ["multitask"])
        >>> modules[0].__name__
        'harness.parity.families.multitask'
    """
    path = importlib.import_module(package).__path__
    names = [
        module.name.removeprefix(f"{package}.")
        for module in pkgutil.walk_packages(path, f"{package}.")
        if not module.ispkg
    ]
    return [importlib.import_module(f"{package}.{n}") for n in in_order(names, first)]


def in_order(names: Iterable[str], first: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the order of ``first``; the others follow, sorted.

    Example:
        >>> in_order({"novograd", "agn", "larc"}, ["larc"])
        ('larc', 'agn', 'novograd')
    """
    others = set(names)
    known = [name for name in first if name in others]
    return (*known, *sorted(others.difference(known)))
