"""Inserts from the checkout itself, so that pages cannot differ from it."""

from __future__ import annotations

import ast
from pathlib import Path

from harness.pages.markup.tables import Cell, table


def checkout_inserts(root: Path) -> dict[str, str]:
    """Return the inserts: two commands, and the sessions of the noxfile."""
    tests = (root / ".ci" / "run").read_text("utf-8").strip().splitlines()[-2]
    return {
        "command_tests": _console(tests),
        "command_reproduce": _console(f"{tests.removesuffix('tests')}reproduce"),
        "sessions": _sessions((root / "noxfile.py").read_text("utf-8")),
    }


def _console(command: str) -> str:
    """Return a command as a code block, with a line break after each ``&&``."""
    return "```console\n" + command.replace(" && ", " &&\n") + "\n```\n"


def _sessions(source: str) -> str:
    """Return the table of nox sessions: each command with the session's docstring."""
    rows: list[list[Cell | str]] = [
        [Cell(f"nox -s {name}", name, "code"), ast.get_docstring(function) or ""]
        for function in ast.parse(source).body
        if isinstance(function, ast.FunctionDef)
        for name in _session_names(function)
    ]
    return table("Sessions", ["Command", "What it does"], rows)


def _session_names(function: ast.FunctionDef) -> list[str]:
    """Return the name of a function as a nox session; empty if it is no session."""
    for decorator in function.decorator_list:
        if ast.unparse(decorator) == "nox.session":
            return [function.name]
        if (
            isinstance(decorator, ast.Call)
            and ast.unparse(decorator.func) == "nox.session"
        ):
            named = {
                word.arg: ast.literal_eval(word.value) for word in decorator.keywords
            }
            return [str(named.get("name", function.name))]
    return []
