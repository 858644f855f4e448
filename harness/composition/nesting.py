"""What nests in what: of every ordered pair of wrappers, and what comes of a stack.

A stack is right if each step has the bits of the pipeline, written out by hand in
:mod:`harness.composition.by_hand`: unscale, zero filter, finite check, norm, clip,
update, row clip. Where the order of two wrappers shows, a note says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["NESTINGS", "NOTES", "Nesting", "notes_of", "refusal_of"]

NOTES: Mapping[str, str] = {
    "idle counts": "a step of zeros only counts as a finite step for the loss scale",
    "skip clips": "rows are cut also on a step that is skipped",
    "zero clips": "rows are cut also where the gradient is all zero",
    "zeros go round": "an all-zero gradient takes part in the round, and its end",
}
"""In what an order can differ from the one in which the stages are listed."""

EVERYWHERE = frozenset({"reference", "pytorch", "tf", "keras3"})
TWICE = "whose loss is not scaled yet"
INSIDE = "put the wrapper inside"


class Nesting(NamedTuple):
    """What comes of one wrapper around another.

    Attributes:
        note: a key of ``NOTES``, or nothing.
        refused: the backends that refuse it when it is built, or a mode of one when
            its first step is.
        sentence: part of what they say.
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
"""(outer, inner) -> what comes of it; a fixed scale is as a dynamic one."""


def pairs_of(stack: str) -> list[tuple[str, str]]:
    """Return every (outer, inner) of a stack's wrappers, neighbours or not."""
    layers = stack.split()[:-1]
    return [(o, i) for k, o in enumerate(layers) for i in layers[k + 1 :]]


def refusal_of(stack: str, backend: str, mode: str = "") -> str | None:
    """Return what is said when this stack is built; None if it can be built."""
    for pair in reversed(pairs_of(stack)):
        if not NESTINGS[pair].refused.isdisjoint({backend, f"{backend} {mode}"}):
            return NESTINGS[pair].sentence
    return None


def notes_of(stack: str) -> frozenset[str]:
    """Return how a stack differs from the order in which the stages are listed."""
    return frozenset(NESTINGS[p].note for p in pairs_of(stack)) - {""}
