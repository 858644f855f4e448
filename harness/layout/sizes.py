"""Sizes of modules, folders and functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from harness.layout.modules import Module, has_docstring

__all__ = ["SIZES"]


def lines(modules: Sequence[Module]) -> int:
    """Return the number of lines of all modules, including empty ones."""
    return sum(module.lines for module in modules)


def fullest_folder(modules: Sequence[Module]) -> int:
    """Return the largest number of modules in one folder, without subfolders."""
    return max(Counter(module.path.parent for module in modules).values(), default=0)


def small_modules(modules: Sequence[Module]) -> int:
    """Return the number of modules with at most 25 `Module.code_lines`."""
    return sum(module.code_lines <= 25 for module in modules)


def small_packages(modules: Sequence[Module]) -> int:
    """Return the number of small modules that are a package's ``__init__.py``."""
    return small_modules([m for m in modules if m.path.name == "__init__.py"])


def statements(modules: Sequence[Module]) -> int:
    """Return the number of statements of the syntax trees, including docstrings."""
    return sum(module.statements for module in modules)


def long_files(modules: Sequence[Module]) -> int:
    """Return the number of files of more than 300 lines."""
    return sum(module.lines > 300 for module in modules)


def long_functions(modules: Sequence[Module]) -> int:
    """Return the number of functions whose body has more than 45 lines."""
    return sum(length > 45 for module in modules for length in module.body_lengths)


def body_percentile(modules: Sequence[Module]) -> int:
    """Return the 90th percentile of lines per function body, without docstrings."""
    lengths = [length for module in modules for length in module.body_lengths]
    return round(float(np.percentile(lengths or [0], 90)))


def file_percentile(modules: Sequence[Module]) -> int:
    """Return the 90th percentile of lines per file."""
    return round(float(np.percentile([m.lines for m in modules] or [0], 90)))


def documented(modules: Sequence[Module]) -> int:
    """Return the percentage of public names with a docstring, rounded down.

    Public names are those of `Module.public`.
    """
    public = [node for module in modules for node in module.public]
    having = sum(map(has_docstring, public))
    return 100 * having // len(public) if public else 100


SIZES: dict[str, Callable[[Sequence[Module]], int]] = {
    "lines": lines,
    "modules": len,
    "modules in one folder, at most": fullest_folder,
    "modules with 25 lines of code or fewer": small_modules,
    "of these, __init__.py of a package": small_packages,
    "statements": statements,
    "files over 300 lines": long_files,
    "functions over 45 lines": long_functions,
    "lines of a function's body, 90th percentile": body_percentile,
    "lines of a file, 90th percentile": file_percentile,
    "public names with a docstring, %": documented,
}
"""Name of a count -> function that counts."""
