"""The command ``lockstep port``: its options, the files it reads, what it prints."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import os
import stat
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
ANYONE_WRITES = 0o222


@dataclass(frozen=True)
class File:
    """A file: its UTF-8 text as bytes, and its byte order mark, if any."""

    path: Path
    text: bytes
    mark: bytes


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
        except PortError as error:
            print(f"lockstep: {error}", file=sys.stderr)
            continue
        results.append(ported)
        for line in _diff(path, ported) if given.diff else _changes(path, ported):
            print(line)
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

    file = read(path)
    try:
        ported = port(file.text)
    except SyntaxError as error:
        raise PortError(
            f"{path}:{error.lineno}: expected Python 3, got "
            f"{(error.text or error.msg).strip()!r}; correct the line, or run 2to3 "
            "first if the program is written in Python 2."
        ) from error
    if given.output is not None:
        write(file, ported.output, given.output / path.relative_to(given.path))
    elif given.write and ported.changes:
        write(file, ported.output, path)
    return ported


# -- files ---------------------------------------------------------------------------


def find(path: Path) -> list[Path]:
    """Return ``path`` if it is a file, or the Python files below it, sorted by name.

    Hidden folders, virtual environments and symbolic links inside a folder are skipped.

    Raises:
        PortError: there are no Python files.
    """
    if path.suffix == ".ipynb":
        raise PortError(
            f"{path}: expected a Python file, got a notebook; "
            "make a script of it with jupyter nbconvert --to script."
        )
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


def read(path: Path) -> File:
    """Read a file.

    Raises:
        PortError: the file cannot be read, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PortError(
            f"{path}: expected a file that can be read, got {error.strerror}; "
            "check its permissions."
        ) from error
    mark = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
    text = data.removeprefix(mark)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise PortError(
            f"{path}:{line}: expected UTF-8, got the byte 0x{text[error.start]:02x}; "
            "save the file as UTF-8 first."
        ) from error
    return File(path, text, mark)


def write(file: File, text: bytes, path: Path) -> None:
    """Write ``text`` to ``path`` with the mode and the byte order mark of ``file``.

    The file is replaced atomically: a reader gets either the old or the new content.

    Raises:
        PortError: the file cannot be written; it is unchanged.
    """
    target = path.resolve()
    mode = file.path.stat().st_mode
    if target.exists() and not mode & ANYONE_WRITES:
        raise PortError(
            f"{path}: expected a file that may be written, got a read-only one; "
            "run chmod u+w on it, or use --output."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as opened:
                opened.write(file.mark + text)
            Path(name).chmod(stat.S_IMODE(mode))
            Path(name).replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise PortError(
            f"{path}: expected to write the file, got {error.strerror or error}; the "
            "file is as it was before, so correct this and run the command again."
        ) from error


# -- what is printed -----------------------------------------------------------------


def _changes(path: Path, ported: Ported) -> Iterator[str]:
    """Yield a line for each change: its place, the old text and the new text."""
    for change in ported.changes:
        added = f"added: {change.after}"
        after = f"{change.before} -> {change.after}" if change.before else added
        yield f"{path}:{change.line}: {after}"


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
