"""Verdicts as badges: a word and the color that it has on every page."""

from __future__ import annotations

from dataclasses import dataclass

from harness.judgement import verdicts

__all__ = ["Badge"]

STYLES = {
    verdicts.REPRODUCED: "good",
    verdicts.PARTLY: "partly",
    verdicts.NOT_REPRODUCED: "bad",
    verdicts.UNDECIDED: "open",
}


@dataclass(frozen=True)
class Badge:
    """What a badge says, and the class that colors it.

    Attributes:
        text: a verdict, or what stands in its place.
    """

    text: str

    @property
    def style(self) -> str:
        """The style of the verdict; ``none`` of what is no verdict."""
        return STYLES.get(self.text, "none")
