"""The errors that only users of this backend can make."""

from __future__ import annotations

from lockstep.messages.errors import MalformedPairsError, sentence

__all__ = ["not_a_variable"]


def not_a_variable(owner: str, got: object) -> MalformedPairsError:
    """Build the error for a pair whose second is no variable."""
    remedy = "put the gradient first and the variable second"
    expected = "pairs (gradient, lockstep.skeleton.Variable)"
    return MalformedPairsError(sentence(owner, expected, type(got).__name__, remedy))
