"""Finding, reading and atomically writing the files of programs."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lockstep.messages import port as refusals

__all__ = ["Source", "find", "read", "write"]

SKIPPED = ("__pycache__", "node_modules", "site-packages")
ANYONE_WRITES = 0o222


@dataclass(frozen=True)
class Source:
    """A file: its UTF-8 text as bytes, and its byte order mark, if any."""

    path: Path
    text: bytes
    mark: bytes


def find(path: Path) -> list[Path]:
    """Return ``path`` if it is a file, or the Python files below it, sorted by name.

    Hidden folders, virtual environments and symbolic links inside a folder are skipped.

    Raises:
        PortError: there are no Python files.
    """
    if path.suffix == ".ipynb":
        raise refusals.NOTEBOOK.error(path=path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise refusals.NO_PATH.error(path=path)
    files = sorted(_below(path))
    if not files:
        raise refusals.NO_PROGRAMS.error(path=path)
    return files


def read(path: Path) -> Source:
    """Read a file.

    Raises:
        PortError: the file cannot be read, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise refusals.UNREADABLE.error(path=path, reason=error.strerror) from error
    mark = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
    text = data.removeprefix(mark)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        line, byte = text.count(b"\n", 0, error.start) + 1, text[error.start]
        raise refusals.NOT_UTF8.error(path=path, line=line, byte=byte) from error
    return Source(path, text, mark)


def write(source: Source, text: bytes, path: Path) -> None:
    """Write ``text`` to ``path`` with the mode and the byte order mark of ``source``.

    The file is replaced atomically: a reader gets either the old or the new content.

    Raises:
        PortError: the file cannot be written; it is unchanged.
    """
    target = path.resolve()
    mode = source.path.stat().st_mode
    if target.exists() and not mode & ANYONE_WRITES:
        raise refusals.READ_ONLY.error(path=path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, source.mark + text, mode)
    except OSError as error:
        reason = error.strerror or str(error)
        raise refusals.UNWRITABLE.error(path=path, reason=reason) from error


def _replace(target: Path, data: bytes, mode: int) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(stat.S_IMODE(mode))
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith(".") or path.is_symlink() or path.name in SKIPPED:
            continue
        if path.is_dir() and not (path / "pyvenv.cfg").exists():
            yield from _below(path)
        elif path.is_file() and path.suffix == ".py":
            yield path
