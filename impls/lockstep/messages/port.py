"""The errors of ``lockstep port``: files that cannot be read, ported or written."""

from __future__ import annotations

from lockstep.errors import LockstepError, MissingFrameworkError, Refusal

__all__ = [
    "NOTEBOOK",
    "NOT_PYTHON",
    "NOT_UTF8",
    "NO_LIBCST",
    "NO_PATH",
    "NO_PROGRAMS",
    "OUTPUT_EXISTS",
    "READ_ONLY",
    "UNREADABLE",
    "UNWRITABLE",
    "PortError",
]


class PortError(LockstepError, ValueError):
    """``lockstep port`` cannot read, port or write a file."""


NO_LIBCST = Refusal(
    MissingFrameworkError,
    "lockstep port: expected libcst to be installed, got none; run pip install libcst.",
)
NO_PATH = Refusal(
    PortError, "{path}: expected a file or a folder, got none; check the path."
)
NO_PROGRAMS = Refusal(
    PortError,
    "{path}: expected Python files in the folder, got none; "
    "name the folder that holds the program.",
)
NOTEBOOK = Refusal(
    PortError,
    "{path}: expected a Python file, got a notebook; "
    "make a script of it with jupyter nbconvert --to script.",
)
NOT_UTF8 = Refusal(
    PortError,
    "{path}:{line}: expected UTF-8, got the byte 0x{byte:02x}; "
    "save the file as UTF-8 first.",
)
NOT_PYTHON = Refusal(
    PortError,
    "{path}:{line}: expected Python 3, got {got!r}; "
    "correct the line, or run 2to3 first if the program is written in Python 2.",
)
UNREADABLE = Refusal(
    PortError,
    "{path}: expected a file that can be read, got {reason}; check its permissions.",
)
READ_ONLY = Refusal(
    PortError,
    "{path}: expected a file that may be written, got a read-only one; "
    "run chmod u+w on it, or use --output.",
)
UNWRITABLE = Refusal(
    PortError,
    "{path}: expected to write the file, got {reason}; "
    "the file is as it was before, so correct this and run the command again.",
)
OUTPUT_EXISTS = Refusal(
    PortError,
    "--output: expected a path that does not exist yet, got {path}; "
    "name another one, or use --write to change files in place.",
)
