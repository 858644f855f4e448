"""The errors of backends whose optimizers run in a center on Ray."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from lockstep.errors import Refusal, UnsupportedError

NOT_EAGER = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected an eager step for a center on Ray, got one in a graph; "
    "train outside of tf.function, and with run_eagerly=True in compile().",
)
OTHER_STATE = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected a checkpoint of a center with {expected}, "
    "got one with {got}; use another directory, or the optimizer that it was made of.",
)
UNKNOWN_OPTIMIZER = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected an optimizer that the center's process can import, "
    "got {got}; define it in a module that all machines have.",
)
NOT_NUMBERS = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected an optimizer of numbers and text, for commit='gradient' "
    "with a center on Ray, got {opt}, whose {name} is {got:a}; "
    "use commit='delta', or an optimizer without a wrapper inside.",
)


def require_kinds(expected: Sequence[str], got: Sequence[str]) -> None:
    """Raise for the first difference between the kinds and states of two optimizers."""
    for own, saved in zip_longest(expected, got, fillvalue="nothing more"):
        if own != saved:
            raise OTHER_STATE.error(expected=own, got=saved)
