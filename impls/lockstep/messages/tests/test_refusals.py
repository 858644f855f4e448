"""The tables of errors, and the code that takes names from ``lockstep.messages``."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

import lockstep
from lockstep.messages import nouns
from lockstep.messages.errors import Refusal

PACKAGE = "lockstep.messages"
SOURCES = Path(lockstep.__file__).parent
FILES = [path for path in sorted(SOURCES.rglob("*.py")) if "tests" not in path.parts]
MODULES = [path for path in FILES if path.is_relative_to(SOURCES / "messages")]

SHAPE = re.compile(r"[^;]+?: expected .+?, got .+?; .+\.", re.DOTALL)


def name_of(path: Path) -> str:
    """Return the name of the module that is in a file of the package."""
    parts = path.relative_to(SOURCES.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))


TABLES = {
    f"{name_of(path)}.{name}": row
    for path in MODULES
    for name, row in vars(importlib.import_module(name_of(path))).items()
    if isinstance(row, Refusal)
}


NOUNS = [value for value in vars(nouns).values() if isinstance(value, nouns.Nouns)]


class Noun:
    """A value of a field, with any format."""

    def __repr__(self) -> str:
        return "NOUN"

    def __format__(self, spec: str) -> str:
        return "NOUN"


def fields_of(row: Refusal[Any]) -> set[str]:
    """Return the names of the fields that a row's sentence has."""
    names = [name for _, name, _, _ in Formatter().parse(row.template) if name]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_a_sentence_of_the_one_shape(name: str) -> None:
    row = TABLES[name]
    fields: dict[str, Any] = {field: Noun() for field in fields_of(row)}
    for own in NOUNS if "nouns" in fields else [Noun()]:
        text = row.text(**{**fields, "nouns": own})
        assert SHAPE.fullmatch(text), text
        assert "  " not in text


def imports_of(path: Path) -> dict[str, str]:
    """Return what each name stands for that a file imports from ``messages``."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
        for alias in node.names
    }


def defined_in(path: Path) -> set[str]:
    """Return the names that a file defines at its top."""
    names: set[str] = set()
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            names |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return names


DEFINED = {name_of(path): defined_in(path) for path in MODULES}


def references(path: Path) -> Iterator[tuple[str, ast.expr]]:
    """Yield every name of ``messages`` that a file uses, in full, and where it is."""
    names = imports_of(path)
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = names.get(node.value.id)
            if module in DEFINED:
                yield f"{module}.{node.attr}", node
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield names.get(node.id, f"{name_of(path)}.{node.id}"), node


def test_every_error_is_built_with_the_fields_of_its_row() -> None:
    for path in FILES:
        rows = {id(node): TABLES.get(name) for name, node in references(path)}
        for call in ast.walk(parsed(path)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                row = rows.get(id(call.func.value))
                if row is not None and call.func.attr in ("error", "text"):
                    fields = {keyword.arg for keyword in call.keywords}
                    assert fields == fields_of(row), f"{path}:{call.lineno}"


def test_every_row_is_used() -> None:
    used = {name for path in FILES for name, _ in references(path)}
    assert not set(TABLES) - used


def test_names_are_imported_from_where_they_are_defined() -> None:
    for path in FILES:
        used = [n for n, node in references(path) if isinstance(node, ast.Attribute)]
        for name in {*imports_of(path).values(), *used} - set(DEFINED):
            module, _, attribute = name.rpartition(".")
            assert attribute in DEFINED.get(module, {attribute}), f"{path}: {name}"
