"""List the mutants of a backend. This part runs in the environment of Cosmic Ray.

``python -m harness.mutation.listing BACKEND SIZE SEED`` prints JSON Lines: first the
number of mutants, then ``SIZE`` of them (0: all). Their order depends only on the seed,
so the first ones are a random sample, and a change of one module does not change the
order of other modules' mutants. The digest of a module needs packages that are not
installed here, so ``harness.mutation.run`` adds it.

The operators make plausible mistakes. An arithmetic operator becomes its inverse. A
comparison becomes its negation, or the one that differs at the boundary. Cosmic Ray can
replace each by all others. But shifts and bit masks of floats only raise TypeError,
which any test notices, so they would only increase the share killed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from harness.mutation.mutant import (
    ROOT,
    Edit,
    edit_between,
    source_of,
)

BINARY = (
    "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul LShift_RShift "
    "RShift_LShift BitOr_BitAnd BitAnd_BitOr BitXor_BitOr"
)
COMPARISON = (
    "Eq_NotEq NotEq_Eq Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt "
    "Is_IsNot IsNot_Is"
)
UNARY = "Delete_USub Delete_Not Delete_Invert"
OTHERS = (
    "AddNot ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr "
    "ReplaceOrWithAnd ReplaceBreakWithContinue ReplaceContinueWithBreak "
    "ExceptionReplacer NumberReplacer RemoveDecorator ZeroIterationForLoop"
)
OPERATORS = (
    *(f"ReplaceBinaryOperator_{name}" for name in BINARY.split()),
    *(f"ReplaceComparisonOperator_{name}" for name in COMPARISON.split()),
    *(f"ReplaceUnaryOperator_{name}" for name in UNARY.split()),
    *OTHERS.split(),
)
"""The operators that are used, by their names in Cosmic Ray."""

MESSAGES = ("fstring", "raise_stmt")
"""Nodes whose content is not mutated: the texts of errors and messages."""

SIGNS = ("parameters", "dictorsetmaker", "lambdef")
"""Nodes in which a star is not an operator: ``def f(a, *, b)`` and ``{**a}``."""


class Place(NamedTuple):
    """A position at which an operator can change a module."""

    path: str
    operator: str
    occurrence: int
    line: int
    definition: str

    def rank(self, seed: str) -> bytes:
        """Return the sort key of this place, which depends only on it and the seed."""
        name = f"{seed} {self.path} {self.operator} {self.occurrence}"
        return hashlib.sha256(name.encode()).digest()


def places(path: str, source: str) -> Iterator[Place]:
    """Yield the places of a module that are mutated.

    Left out are annotations, which are not evaluated; stars that are not operators; the
    texts of errors and messages; and ``zip(strict=True)``, which only protects against
    our own mistakes. Cosmic Ray never changes strings, so docstrings stay, too.
    """
    nodes = list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator = _operator(name)
        positions = (
            (node, start)
            for node in nodes
            for start, _ in operator.mutation_positions(node)
        )
        for occurrence, (node, start) in enumerate(positions):
            if not _is_left_out(node):
                definition = ASTQuery(node).get_definition_name() or ""
                yield Place(path, name, occurrence, start[0], definition)


def _operator(name: str) -> Any:
    return get_operator(f"core/{name}")()


def _is_left_out(node: Any) -> bool:
    """Whether `places` leaves out this node."""
    parent = node.parent
    if parent is not None and parent.type in SIGNS and node.type == "operator":
        return True
    while parent is not None:
        if parent.type in MESSAGES or _is_annotation(node, parent):
            return True
        if parent.type == "argument" and parent.get_code().strip() == "strict=True":
            return _is_zip(parent)
        node, parent = parent, parent.parent
    return False


def _is_annotation(node: Any, parent: Any) -> bool:
    """Whether ``node`` is the annotation of a name or a function in ``parent``."""
    if parent.type == "tfpdef":
        return bool(node is parent.children[-1])
    if parent.type == "annassign":
        return bool(node is parent.children[1])
    return bool(parent.type == "funcdef" and node is parent.annotation)


def _is_zip(argument: Any) -> bool:
    """Whether an argument belongs to a call of ``zip``."""
    parent = argument.parent
    call = parent.parent if parent.type == "arglist" else parent
    before = call.get_previous_leaf()
    return before is not None and before.value == "zip"


def edit_of(place: Place, source: str) -> Edit:
    """Return the edit that the operator makes at a place of a module's source."""
    changed = mutate_code(source, _operator(place.operator), place.occurrence)
    return edit_between(source, changed)


def main(arguments: Sequence[str]) -> None:
    """Print the number of mutants of a backend, and the first ``size`` of them."""
    backend, size, seed = arguments
    home = ROOT / "impls" / "lockstep" / backend
    files = [p for p in sorted(home.rglob("*.py")) if "tests" not in p.parts]
    paths = [path.relative_to(ROOT).as_posix() for path in files]
    sources = {path: source_of(path) for path in paths}
    mutants = [place for path in paths for place in places(path, sources[path])]
    mutants.sort(key=lambda place: place.rank(seed))
    print(json.dumps({"mutants": len(mutants)}))
    for place in mutants[: int(size) or None]:
        edit = edit_of(place, sources[place.path])
        print(json.dumps({**place._asdict(), "edit": asdict(edit)}))


if __name__ == "__main__":
    main(sys.argv[1:])
