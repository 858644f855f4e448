"""The command ``lockstep port``: its options, and the loop over files."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.messages import port as refusals
from lockstep.port import files

if TYPE_CHECKING:
    from lockstep.port.rewrite import Ported

__all__ = ["add_options", "run"]

ABOUT = "port TensorFlow 1 programs to lockstep.tf.strict on TensorFlow 2"
DETAIL = f"""{ABOUT.capitalize()}: change their imports and full names. Without options
it writes nothing and prints what would change, and what is left to you."""
CHANGED, FAILED = 1, 2


def add_options(commands: Any) -> None:
    """Add the command and its options to the commands of ``lockstep``."""
    parser = commands.add_parser("port", help=ABOUT, description=DETAIL)
    parser.add_argument("path", type=Path, help="a Python file, or a folder of them")
    writing = parser.add_mutually_exclusive_group()
    writing.add_argument("--write", action="store_true", help="change files in place")
    to = "write the ported files here, which must not exist yet"
    writing.add_argument("--output", type=Path, metavar="PATH", help=to)
    check = "write nothing; exit with status 1 if a file would change"
    writing.add_argument("--check", action="store_true", help=check)
    shown = "print a diff in place of the list of changes"
    parser.add_argument("--diff", action="store_true", help=shown)


def run(given: argparse.Namespace) -> int:
    """Port the files at ``given.path``; return the exit status.

    A file that cannot be ported is reported on stderr, and the others are still ported.

    Raises:
        LockstepError: libcst is missing, or there is nothing to port.
    """
    try:
        importlib.import_module("libcst")
    except ImportError as error:
        raise refusals.NO_LIBCST.error() from error
    from lockstep.port import report

    paths = files.find(given.path)
    if given.output is not None and given.output.exists():
        raise refusals.OUTPUT_EXISTS.error(path=given.output)
    results = []
    for path in paths:
        try:
            ported = _port(path, given)
        except refusals.PortError as error:
            print(f"lockstep: {error}", file=sys.stderr)
            continue
        results.append(ported)
        shown = report.diff if given.diff else report.changes
        for line in shown(path, ported):
            print(line)
        for line in report.leftovers(path, ported):
            print(line, file=sys.stderr if given.diff else sys.stdout)
    written = given.write or given.output is not None
    refused = len(paths) - len(results)
    last = report.summary(results, written, refused)
    print(last, file=sys.stderr if given.diff else sys.stdout)
    changed = any(ported.changes for ported in results)
    return FAILED if refused else CHANGED if given.check and changed else 0


def _port(path: Path, given: argparse.Namespace) -> Ported:
    """Port one file, and write the result if an option requests it."""
    from lockstep.port.rewrite import port

    source = files.read(path)
    try:
        ported = port(source.text)
    except SyntaxError as error:
        got = (error.text or error.msg).strip()
        line = error.lineno
        raise refusals.NOT_PYTHON.error(path=path, line=line, got=got) from error
    if given.output is not None:
        inside = path.relative_to(given.path)
        files.write(source, ported.output, given.output / inside)
    elif given.write and ported.changes:
        files.write(source, ported.output, path)
    return ported
