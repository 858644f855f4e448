"""The nouns of this backend, and the errors that only it raises."""

from __future__ import annotations

from lockstep.messages.errors import MalformedPairsError, Refusal
from lockstep.messages.nouns import Nouns

SKELETON = Nouns("skeleton optimizer", "Variable", "skeleton Variables")

NOT_A_VARIABLE = Refusal(
    MalformedPairsError,
    "{owner}: expected pairs (gradient, lockstep.skeleton.Variable), got {got}; "
    "put the gradient first and the variable second.",
)
