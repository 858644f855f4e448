"""The command ``lockstep port``: its options, the files it reads, what it prints."""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import stat
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.errors import MissingFrameworkError, PortError

if TYPE_CHECKING:
    from lockstep.port.rewrite import Ported

ABOUT = "port TensorFlow 1 programs to lockstep.tf.strict on TensorFlow 2"
DETAIL = f"""{ABOUT.capitalize()}: change their imports and full names. Without options
it writes nothing and prints what would change, and what is left to you."""
CHANGED, FAILED = 1, 2
SKIPPED = ("__pycache__", "node_modules", "site-packages")


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
    """
    try:
        importlib.import_module("libcst")
    except ImportError as error:
        raise MissingFrameworkError(
            "lockstep port: expected libcst to be installed, got none; "
            "run pip install libcst."
        ) from error
    paths = find(given.path)
    if given.output is not None and given.output.exists():
        raise PortError(
            f"--output: expected a path that does not exist yet, got {given.output}; "
            "name another one, or use --write to change files in place."
        )
    results = []
    for path in paths:
        try:
            ported = _port(path, given)
        except (PortError, OSError) as error:
            print(f"lockstep: {error}", file=sys.stderr)
            continue
        results.append(ported)
        for line in _diff(path, ported) if given.diff else ():
            print(line)
        for change in ported.changes if not given.diff else ():
            added = f"added: {change.after}"
            after = f"{change.before} -> {change.after}" if change.before else added
            print(f"{path}:{change.line}: {after}")
        for left in ported.leftovers:
            places = f" ({left.places} places)" if left.places > 1 else ""
            line = f"{path}:{left.line}: left to you: {left.name}{places}"
            output = sys.stderr if given.diff else sys.stdout
            print(f"{line}: {left.advice}", file=output)
    written = given.write or given.output is not None
    refused = len(paths) - len(results)
    last = _summary(results, written, refused)
    print(last, file=sys.stderr if given.diff else sys.stdout)
    changed = any(ported.changes for ported in results)
    return FAILED if refused else CHANGED if given.check and changed else 0


def _port(path: Path, given: argparse.Namespace) -> Ported:
    """Port one file, and write the result if an option requests it."""
    from lockstep.port.rewrite import port

    data = path.read_bytes()
    mark = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
    try:
        ported = port(data.removeprefix(mark))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PortError(
            f"{path}:{line}: expected UTF-8, got the byte "
            f"0x{error.object[error.start]:02x}; save the file as UTF-8 first."
        ) from error
    except SyntaxError as error:
        raise PortError(
            f"{path}:{error.lineno}: expected Python 3, got "
            f"{(error.text or error.msg).strip()!r}; correct the line, or run 2to3 "
            "first if the program is written in Python 2."
        ) from error
    mode = stat.S_IMODE(path.stat().st_mode)
    if given.output is not None:
        target = given.output / path.relative_to(given.path)
        write(target, mark + ported.output, mode)
    elif given.write and ported.changes:
        if not mode & 0o222:  # A read-only file could be replaced.
            raise PortError(
                f"{path}: expected a file that may be written, got a read-only one; "
                "run chmod u+w on it, or use --output."
            )
        write(path.resolve(), mark + ported.output, mode)
    return ported


# -- files ---------------------------------------------------------------------------


def find(path: Path) -> list[Path]:
    """Return ``path`` if it is a file, or the Python files below it, sorted by name.

    Hidden folders, virtual environments and symbolic links inside a folder are skipped.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise PortError(f"{path}: expected a file or a folder, got none; check it.")
    files = sorted(_below(path))
    if not files:
        raise PortError(
            f"{path}: expected Python files in the folder, got none; "
            "name the folder that holds the program."
        )
    return files


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith(".") or path.is_symlink() or path.name in SKIPPED:
            continue
        if path.is_dir() and not (path / "pyvenv.cfg").exists():
            yield from _below(path)
        elif path.is_file() and path.suffix == ".py":
            yield path


def write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file at once, so that a reader gets the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# -- what is printed -----------------------------------------------------------------


def _diff(path: Path, ported: Ported) -> Iterator[str]:
    """Yield the lines of a unified diff, without their newlines."""
    texts = (ported.source.decode(), ported.output.decode())
    # str.splitlines would also split at form feeds.
    before, after = (list(io.StringIO(text, newline="")) for text in texts)
    for line in difflib.unified_diff(before, after, str(path), str(path)):
        yield line.removesuffix("\n")
        if not line.endswith(("\n", "\r")):
            yield "\\ No newline at end of file"


def _summary(results: Sequence[Ported], written: bool, refused: int) -> str:
    """Return the numbers of changed files, changes, and names left to the user."""
    changed = [ported for ported in results if ported.changes]
    number = sum(len(ported.changes) for ported in changed)
    left = sum(len(ported.leftovers) for ported in results)
    verb = "changed" if written else "would change"
    parts = [f"{len(changed)} of {_count(len(results) + refused, 'file')} {verb}"]
    parts += [f"{_count(number, 'change')}", f"{_count(left, 'name')} left to you"]
    parts += [f"{_count(refused, 'file')} could not be ported"] if refused else []
    dry = "" if written or not changed else " Nothing was written: --write does it."
    return ", ".join(parts) + "." + dry


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
