"""Repetitions in the code, and names that the style guide advises against."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from harness.layout.modules import Definition, Module
from lockstep.interface import EXPORTS
from lockstep.registry import BACKENDS

__all__ = ["REPETITION", "participles"]

PARTICIPLES = frozenset({"found", "given", "kept", "made", "seen", "told", "wanted"})

SHORTEST = 16
"""Minimum length of a docstring line that is compared. Headings are shorter."""


def repeated_docstring_lines(modules: Sequence[Module]) -> int:
    """Return the number of different docstring lines that two or more backends share.

    Lines of fewer than 16 characters, such as ``Args:``, are left out.
    """
    backends = defaultdict[str, set[str]](set)
    for module in modules:
        for backend in set(BACKENDS) & set(module.path.parts):
            for line in _docstring_lines(module):
                backends[line].add(backend)
    return sum(len(having) >= 2 for having in backends.values())


def _docstring_lines(module: Module) -> Iterator[str]:
    for node in module.documented:
        for line in (ast.get_docstring(node) or "").splitlines():
            if len(line.strip()) >= SHORTEST:
                yield line.strip()


def error_builders(modules: Sequence[Module]) -> int:
    """Return the number of functions that are annotated to return an error."""
    return len(_builders(modules))


def error_builders_called_once(modules: Sequence[Module]) -> int:
    """Return the number of functions that return an error and have at most one call.

    Calls are matched only by the name of the function.
    """
    calls = Counter(
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name | ast.Attribute)
    )
    return sum(calls[name] <= 1 for name in _builders(modules))


def _builders(modules: Sequence[Module]) -> list[str]:
    return [
        function.name
        for module in modules
        for function in module.functions
        if function.returns
        and re.fullmatch(r"'?[\w.]*Error'?", ast.unparse(function.returns))
    ]


def lists_of_public_names(modules: Sequence[Module]) -> int:
    """Return the number of lists, tuples, sets and keys with half the public names."""
    return _having_half(names for module in modules for names in _literals(module))


def modules_that_bind_public_names(modules: Sequence[Module]) -> int:
    """Return the number of modules that bind at least half of the public names.

    They import, define or assign the names. Type checkers and the API pages read them,
    so they are written out. A test compares those of the backends with ``EXPORTS``.
    """
    return _having_half(_bound(module) for module in modules)


def _having_half(places: Iterable[set[str]]) -> int:
    return sum(2 * len(names & set(EXPORTS)) >= len(EXPORTS) for names in places)


def _literals(module: Module) -> Iterator[set[str]]:
    for node in module.nodes:
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            yield _strings(node.elts)
        elif isinstance(node, ast.Dict):
            yield _strings(node.keys)


def _bound(module: Module) -> set[str]:
    body = module.tree.body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    assigned = [node.targets for node in body if isinstance(node, ast.Assign)]
    return (
        {alias.asname or alias.name for node in imports for alias in node.names}
        | {node.name for node in body if isinstance(node, Definition)}
        | {
            name.id
            for targets in assigned
            for target in targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
    )


def _strings(nodes: Sequence[ast.expr | None]) -> set[str]:
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return {value for value in values if isinstance(value, str)}


def participles(modules: Sequence[Module]) -> int:
    """Return the number of assignments to a variable named like one of `PARTICIPLES`.

    Targets of loops, comprehensions and ``with`` are counted; arguments are not.
    """
    return sum(
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in PARTICIPLES
        for module in modules
        for node in module.nodes
    )


REPETITION: dict[str, Callable[[Sequence[Module]], int]] = {
    "docstring lines that two backends have word for word": repeated_docstring_lines,
    "functions that build an error": error_builders,
    "functions that build an error, called in one place at most": (
        error_builders_called_once
    ),
    "lists of public names": lists_of_public_names,
    "modules that import or define half of the public names": (
        modules_that_bind_public_names
    ),
}
"""Name of a count -> function that counts the modules of all backends."""
