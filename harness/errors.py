"""The exception whose text the command line prints, and a shared error."""

from __future__ import annotations

from lockstep.errors import UnsupportedError, sentence


class HarnessError(Exception):
    """An error that the user can correct. Its text is one clear sentence."""


def no_device(backend: str, device: str, got: str) -> UnsupportedError:
    """Build the error for a device on which a backend cannot run.

    Of the framework's own message, only the first sentence is kept.
    """
    got = got.splitlines()[0].partition(". ")[0].rstrip(".")
    if got.startswith("Expected one of"):  # torch lists every device type it knows
        got = "a name that is no device type"
    return UnsupportedError(sentence(backend, f"the device {device!r}", got, "use cpu"))
