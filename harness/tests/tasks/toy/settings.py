"""The settings of a run that trains nothing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """An arm, a rate and a number that nothing depends on."""

    arm: str
    rate: float
    steps: int
