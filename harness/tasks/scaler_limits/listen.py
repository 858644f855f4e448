"""Record the messages during a step: warnings, and lines on standard error."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["listening"]

STDERR = 2


@contextmanager
def listening() -> Iterator[list[str]]:
    """Yield a list that is filled with the messages at the end of the block.

    The file descriptor is redirected, because TensorFlow's graphs do not print through
    ``sys.stderr``.
    """
    heard: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        original = os.dup(STDERR)
        os.dup2(file.fileno(), STDERR)
        try:
            yield heard
        finally:
            sys.stderr.flush()
            os.dup2(original, STDERR)
            os.close(original)
            heard += [str(warning.message) for warning in said]
            file.seek(0)
            heard += file.read().decode(errors="replace").splitlines()
