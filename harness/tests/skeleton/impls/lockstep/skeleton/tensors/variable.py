"""A variable: a name and an array, which each update replaces."""

from __future__ import annotations

from lockstep.interface import Array

__all__ = ["Variable"]


class Variable:
    """What a framework has of its own, such as ``torch.nn.Parameter``."""

    def __init__(self, name: str, value: Array) -> None:
        self.name, self.value = name, value
