"""Modules of the checkout as text and syntax tree, and the sizes of their parts."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

__all__ = ["Definition", "Function", "Module", "has_docstring", "read_modules"]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

Definition: TypeAlias = Function | ast.ClassDef

LEFT_OUT = ("tests", "programs")
"""Folders that are not counted: tests, and old programs as their users wrote them."""

NO_CODE = (
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
)


@dataclass(frozen=True)
class Module:
    """One file: its path in the checkout and its text."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the syntax tree."""
        return list(ast.walk(self.tree))

    @property
    def lines(self) -> int:
        """Number of lines, including empty ones."""
        return len(self.text.splitlines())

    @property
    def code_lines(self) -> int:
        """Number of lines with code: without empty lines, comments and docstrings."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        lines = {
            line
            for token in tokens
            if token.type not in NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
        for node in self.documented:
            text = node.body[0]
            lines -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
        return len(lines)

    @property
    def statements(self) -> int:
        """Number of statements of the syntax tree, including docstrings."""
        return sum(isinstance(node, ast.stmt) for node in self.nodes)

    @property
    def body_lengths(self) -> list[int]:
        """Number of lines from the first to the last statement of each function.

        Nested functions and methods are included, docstrings are not.
        """
        return [_body_length(node) for node in self.functions]

    @property
    def functions(self) -> list[Function]:
        """All functions, including nested ones."""
        return [node for node in self.nodes if isinstance(node, Function)]

    @property
    def documented(self) -> list[ast.Module | Definition]:
        """The module, classes and functions that have a docstring."""
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in self.nodes if isinstance(node, kinds)]
        return [node for node in nodes if ast.get_docstring(node) is not None]

    @property
    def public(self) -> list[Definition]:
        """Classes, their methods and functions without a leading underscore.

        Definitions in functions are not public. Nor are tests, whose names are
        sentences. A property and its setter are counted once.
        """
        return list(_public(self.tree))


def read_modules(root: Path, folder: str) -> list[Module]:
    """Read all Python files below ``root / folder``, in the order of their paths."""
    paths = sorted(path.relative_to(root) for path in (root / folder).rglob("*.py"))
    return [
        Module(path, (root / path).read_text("utf-8"))
        for path in paths
        if not set(path.parts) & set(LEFT_OUT)
    ]


def has_docstring(node: ast.Module | Definition) -> bool:
    """Whether there is a docstring, or ``documented`` supplies one."""
    decorators = [] if isinstance(node, ast.Module) else node.decorator_list
    supplied = "documented" in map(ast.unparse, decorators)
    return supplied or ast.get_docstring(node) is not None


def _body_length(function: Function) -> int:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    if not body:
        return 0
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1


def _public(scope: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    for node in scope.body:
        if not isinstance(node, Definition) or node.name.startswith(("_", "test_")):
            continue
        if f"{node.name}.setter" not in map(ast.unparse, node.decorator_list):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _public(node)
