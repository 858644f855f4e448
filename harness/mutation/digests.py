"""Digests of modules. They show whether a result is about the current source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from harness.mutation.mutant import ROOT, source_of
from harness.records.code import source_digest


def current_digest(path: str) -> str | None:
    """Return the digest of a module of the checkout, or None if it no longer exists."""
    return module_digest(source_of(path)) if (ROOT / path).is_file() else None


def module_digest(source: str) -> str:
    """Return a digest of a module's behaviour, as sixteen hexadecimal digits.

    Docstrings, comments, line breaks and the names of variables that a function assigns
    do not change it. So a mutant is tried again only when the code changes.
    """
    tree = _WithoutNames().visit(ast.parse(source))
    return source_digest(ast.unparse(tree), sentences=True)


class _WithoutNames(ast.NodeTransformer):
    """Numbers the variables of each outermost function, in the order of the tree."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rename the variables that the function and its inner functions assign."""
        others = set(_fixed_names(node))
        stores = [name.id for name in _names(node) if isinstance(name.ctx, ast.Store)]
        variables = [name for name in dict.fromkeys(stores) if name not in others]
        numbers = {name: f"_variable_{i}" for i, name in enumerate(variables)}
        for name in _names(node):
            name.id = numbers.get(name.id, name.id)
        return node


def _names(function: ast.FunctionDef) -> Iterator[ast.Name]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Name))


def _fixed_names(function: ast.FunctionDef) -> Iterator[str]:
    """Yield names that belong to a signature or to another scope."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names
