"""Parsing a program with libcst: its imports and its full names of TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from libcst import metadata
from libcst.helpers import get_full_name_for_node

ROOTS = ("tensorflow", "open_seq2seq")
LOCALS = "<locals>."


@dataclass(frozen=True)
class Span:
    """The start and end of a part of a program, in bytes."""

    start: int
    end: int

    def holds(self, other: Span) -> bool:
        """Whether ``other`` is inside this span."""
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True)
class Alias:
    """One name of an import: ``name as alias``."""

    name: str
    alias: str | None


@dataclass(frozen=True)
class Import:
    """An import statement."""

    span: Span
    module: str | None  # X of ``from X import``; None for ``import``.
    module_span: Span  # That of X; without X, of the statement.
    aliases: tuple[Alias, ...]  # Empty for ``from X import *``.
    at_top: bool  # At module level, not in a block.
    inline: bool  # On the line that begins its block.


@dataclass(frozen=True)
class Spelling:
    """An expression such as ``tf.contrib.opt.X``."""

    span: Span
    text: str  # As written, without spaces.
    full: str  # Such as ``tensorflow.contrib.opt.X``.
    whole: bool  # Not part of a longer expression.


@dataclass(frozen=True)
class Assigned:
    """A statement ``name = value`` whose value is the full name ``full``."""

    span: Span
    name: str
    full: str


@dataclass
class Program:
    """The imports, full names and strings of a program, in the order of the file."""

    imports: list[Import] = field(default_factory=list)
    spellings: list[Spelling] = field(default_factory=list)
    assigned: list[Assigned] = field(default_factory=list)
    texts: list[tuple[Span, str]] = field(default_factory=list)  # No docstrings.
    start: int = 0  # Of the first statement after docstring and ``__future__``.
    bound: set[str] = field(default_factory=set)  # Names bound or used anywhere.


def read(text: str) -> Program:
    """Parse a program; raise a SyntaxError if it is not valid Python."""
    try:
        wrapper = metadata.MetadataWrapper(cst.parse_module(text))
    except cst.ParserSyntaxError as error:
        number = error.raw_line
        lines = re.split(r"\r\n|\r|\n", text)[number - 1 :]
        details = (None, number, None, lines[0] if lines else "")
        raise SyntaxError(error.message, details) from error
    reader = _Reader(wrapper)
    wrapper.module.visit(reader)
    return reader.program


class _Reader(cst.CSTVisitor):
    """Visitor that collects the parts of a program."""

    def __init__(self, wrapper: metadata.MetadataWrapper) -> None:
        super().__init__()
        self.spans: Mapping[Any, Any] = wrapper.resolve(
            metadata.ByteSpanPositionProvider
        )
        self.parents: Mapping[Any, Any] = wrapper.resolve(metadata.ParentNodeProvider)
        self.full: Mapping[Any, Any] = wrapper.resolve(metadata.QualifiedNameProvider)
        self.modules: dict[str, str] = {}
        self.program = Program(start=self._start(wrapper.module))

    def visit_Import(self, node: cst.Import) -> bool:
        self._add_import(node, None, self._span(node), node.names)
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if not node.relative and node.module is not None:
            names = () if isinstance(node.names, cst.ImportStar) else node.names
            module = get_full_name_for_node(node.module) or ""
            self._add_import(node, module, self._span(node.module), names)
        return False

    def visit_Assign(self, node: cst.Assign) -> None:
        target, full = node.targets[0].target, self._full_name(node.value)
        if full is None or len(node.targets) > 1:
            return
        if isinstance(target, cst.Name):
            self.program.assigned.append(Assigned(self._span(node), target.value, full))
            self.modules[target.value] = full

    def visit_Name(self, node: cst.Name) -> None:
        parent = self.parents[node]
        is_attribute = isinstance(parent, cst.Attribute) and parent.attr is node
        is_keyword = isinstance(parent, cst.Arg) and parent.keyword is node
        if not is_attribute and not is_keyword:
            self.program.bound.add(node.value)
            self._add_spelling(node)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._add_spelling(node)

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        value = node.evaluated_value
        if isinstance(value, str) and not isinstance(self.parents[node], cst.Expr):
            self.program.texts.append((self._span(node), value))

    def _add_import(
        self, node: Any, module: str | None, where: Span, names: Any
    ) -> None:
        aliases = tuple(Alias(n.evaluated_name, n.evaluated_alias) for n in names)
        self.program.bound.update(a.alias or a.name.split(".")[0] for a in aliases)
        line = self.parents[node]
        inline = isinstance(line, cst.SimpleStatementSuite)
        at_top = isinstance(self.parents[line], cst.Module)
        statement = Import(self._span(node), module, where, aliases, at_top, inline)
        self.program.imports.append(statement)

    def _add_spelling(self, node: cst.Name | cst.Attribute) -> None:
        whole = not isinstance(self.parents[node], cst.Attribute)
        full, text = self._full_name(node), get_full_name_for_node(node)
        if full is not None and text is not None:
            spelling = Spelling(self._span(node), text, full, whole)
            self.program.spellings.append(spelling)

    def _full_name(self, node: cst.CSTNode) -> str | None:
        """Return the full name of an expression that begins with an old module."""
        if not isinstance(node, cst.Name | cst.Attribute):
            return None
        names = self.full.get(node, ())
        for entry in names() if callable(names) else names:
            if entry.source is metadata.QualifiedNameSource.IMPORT:
                if entry.name.split(".")[0] in ROOTS:
                    return str(entry.name)
                continue
            first, dot, rest = entry.name.rpartition(LOCALS)[2].partition(".")
            if first in self.modules:
                return f"{self.modules[first]}{dot}{rest}"
        return None

    def _start(self, module: cst.Module) -> int:
        """Return the start of :class:`Program`."""
        for place, line in enumerate(module.body):
            code = module.code_for_node(line).lstrip()
            is_docstring = place == 0 and re.match(r"[rRuUbB]?[\"']", code)
            if not is_docstring and not code.startswith("from __future__"):
                return self._span(line).start
        return 0

    def _span(self, node: cst.CSTNode) -> Span:
        span = self.spans[node]
        return Span(span.start, span.start + span.length)
