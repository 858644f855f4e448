"""Badges of verdicts: a word with the same color on every page."""

from __future__ import annotations

from dataclasses import dataclass

from harness.judgement import verdicts

STYLES = {
    verdicts.REPRODUCED: "good",
    verdicts.PARTLY: "partly",
    verdicts.NOT_REPRODUCED: "bad",
    verdicts.NO_DIFFERENCE: "bad",
    verdicts.UNDECIDED: "open",
}


@dataclass(frozen=True)
class Badge:
    """The text of a badge and its CSS class.

    Attributes:
        text: a verdict, or the reason why there is none.
    """

    text: str

    @property
    def style(self) -> str:
        """The CSS class of the verdict, or ``none`` if the text is no verdict."""
        return STYLES.get(self.text, "none")
