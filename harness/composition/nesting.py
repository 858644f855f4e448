"""How wrappers nest: the result of every ordered pair, and of a stack.

A stack is valid if each step has the bits of the pipeline in
:mod:`harness.composition.by_hand`: unscale, zero filter, finite check, norm, clip,
update, row clip. If the order of two wrappers changes the result, a note says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["NESTINGS", "NOTES", "Nesting", "notes_of", "refusal_of"]

NOTES: Mapping[str, str] = {
    "idle counts": "a step with only zero gradients is finite for the loss scale",
    "skip clips": "rows are clipped even if the step is skipped",
    "zero clips": "rows are clipped even if the gradient is all zero",
    "zeros go round": "a variable with an all-zero gradient is pushed and pulled",
}
"""How a nesting order can differ from the listed order of the stages."""

EVERYWHERE = frozenset({"reference", "pytorch", "tf", "keras3"})
TWICE = "whose loss is not scaled yet"
INSIDE = "put the wrapper inside"


class Nesting(NamedTuple):
    """The result of one wrapper around another.

    Attributes:
        note: a key of ``NOTES``, or empty.
        refused: backends that raise when the pair is built, or a mode of a backend that
            raises in its first step.
        sentence: part of the error message.
    """

    note: str = ""
    refused: frozenset[str] = frozenset()
    sentence: str = ""


RIGHT = Nesting()
SCALED_TWICE = Nesting(refused=EVERYWHERE, sentence=TWICE)

NESTINGS: Mapping[tuple[str, str], Nesting] = {
    ("multitask", "multitask"): RIGHT,
    ("multitask", "rows"): RIGHT,
    ("multitask", "dynamic"): RIGHT,
    ("multitask", "masters-dynamic"): Nesting(
        refused=frozenset({"pytorch"}), sentence=INSIDE
    ),
    ("multitask", "agn"): Nesting(
        refused=frozenset({"tf graph"}), sentence="the other way round"
    ),
    ("rows", "multitask"): Nesting("zero clips"),
    ("rows", "rows"): RIGHT,
    ("rows", "dynamic"): Nesting("skip clips"),
    ("rows", "masters-dynamic"): Nesting(
        refused=EVERYWHERE, sentence="put the row clipping inside"
    ),
    ("rows", "agn"): Nesting(
        refused=EVERYWHERE, sentence="put the row clipping inside"
    ),
    ("dynamic", "multitask"): Nesting("idle counts"),
    ("dynamic", "rows"): RIGHT,
    ("dynamic", "dynamic"): SCALED_TWICE,
    ("dynamic", "masters-dynamic"): SCALED_TWICE,
    ("dynamic", "agn"): RIGHT,
    ("masters-dynamic", "multitask"): Nesting("idle counts"),
    ("masters-dynamic", "rows"): RIGHT,
    ("masters-dynamic", "dynamic"): SCALED_TWICE,
    ("masters-dynamic", "masters-dynamic"): SCALED_TWICE,
    ("masters-dynamic", "agn"): Nesting(
        refused=EVERYWHERE, sentence="shares what it trains"
    ),
    ("agn", "multitask"): Nesting("zeros go round"),
    ("agn", "rows"): RIGHT,
    ("agn", "dynamic"): Nesting(refused=EVERYWHERE, sentence="the other way round"),
    ("agn", "masters-dynamic"): Nesting(
        refused=EVERYWHERE, sentence="shares what it trains"
    ),
    ("agn", "agn"): Nesting(refused=EVERYWHERE, sentence="shared already"),
}
"""(outer, inner) -> result. A fixed scale behaves like a dynamic one."""


def pairs_of(stack: str) -> list[tuple[str, str]]:
    """Return every (outer, inner) pair of a stack's wrappers, adjacent or not."""
    layers = stack.split()[:-1]
    return [(o, i) for k, o in enumerate(layers) for i in layers[k + 1 :]]


def refusal_of(stack: str, backend: str, mode: str = "") -> str | None:
    """Return part of the error of this stack, or None if it can be built."""
    for pair in reversed(pairs_of(stack)):
        if not NESTINGS[pair].refused.isdisjoint({backend, f"{backend} {mode}"}):
            return NESTINGS[pair].sentence
    return None


def notes_of(stack: str) -> frozenset[str]:
    """Return how a stack differs from the listed order of the stages."""
    return frozenset(NESTINGS[p].note for p in pairs_of(stack)) - {""}
