"""The one exception that the command line turns into a sentence and an exit status."""

from __future__ import annotations

__all__ = ["HarnessError"]


class HarnessError(Exception):
    """Something the user can put right; its text is one clear sentence."""
