"""What a tool declares: mistakes, with what a backend makes for them, and layouts."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from lockstep import errors

__all__ = ["EVERYWHERE", "WHOLE_ONLY", "Cells", "Kit", "Mistake", "Wrap", "clipped"]

Cells = tuple[str, str, str]
"""What happens in DDP, FSDP2 and tensor parallelism."""

EVERYWHERE: Cells = ("right", "right", "right")
WHOLE_ONLY: Cells = ("right", "refused", "refused")

Mistake = tuple[Callable[..., Any], type[errors.LockstepError], str]
"""The call, what it raises, and the words of its sentence."""


class Kit(NamedTuple):
    """What a backend makes for a mistake.

    Attributes:
        ls: the backend.
        variable: makes a variable of two ones, float32.
        tensor: makes a tensor of these values; ``dtype`` is float32 unless given.
        first: the variable -> what comes before the arguments of an optimizer.
        loss: the variable -> a loss of it, as a function without arguments.
        device: the name of the device that runs.
    """

    ls: ModuleType
    variable: Callable[[], Any]
    tensor: Callable[..., Any]
    first: Callable[[Any], list[Any]]
    loss: Callable[[Any], Callable[[], Any]]
    device: str

    def base(self, variable: Any) -> Any:
        """Return an optimizer of the variable."""
        return self.ls.GradientDescentOptimizer(*self.first(variable), 0.1)


Wrap = Callable[[Kit, Any], Any]
"""The kit, a variable -> a wrapper around an optimizer of the variable."""


def clipped(kit: Kit, *limits: Any) -> list[Any]:
    """Return what was given to the function that clips pairs."""
    return [[(kit.tensor(1, 1), kit.variable())], *limits]
