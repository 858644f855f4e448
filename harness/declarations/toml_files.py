"""TOML files whose errors name the file, the line, the key and what is allowed.

The line of a key is computed by parsing the file statement by statement. A statement
ends where the lines so far are valid TOML. Its new keys begin at its first line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from harness.errors import HarnessError
from lockstep.errors import LockstepError, sentence, unknown_name

__all__ = ["Key", "TomlFile", "dotted"]

Key: TypeAlias = tuple[str | int, ...]
"""Path of a value: ``("row", 2, "goal")`` is ``goal`` of the third ``[[row]]``."""

PLACE = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)")
QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")


class TomlFile:
    """The content of a TOML file, and errors that name its lines.

    Raises:
        HarnessError: the file cannot be read, or is not valid TOML.

    Example:
        >>> file = TomlFile.parse("a = 1\\n[b]\\nc = 2\\n", "x.toml")
        >>> file.line("b", "c")
        3
        >>> str(file.error(("b", "c"), "a text", 2, "quote it"))
        'x.toml, line 3: b.c: expected a text, got 2; quote it.'
    """

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            remedy = "write the file as TOML in UTF-8"
            got = getattr(error, "strerror", None) or str(error)
            raise HarnessError(sentence(str(path), "TOML", got, remedy)) from error
        self._load(text, path.name)

    @classmethod
    def parse(cls, text: str, name: str) -> TomlFile:
        """Parse ``text``. Errors call the file ``name``."""
        file = cls.__new__(cls)
        file._load(text, name)
        return file

    def _load(self, text: str, name: str) -> None:
        self.name, self._lines = name, text.splitlines(keepends=True)
        try:
            self.content: dict[str, Any] = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            match = PLACE.search(str(error))
            line = int((match and match[1]) or len(self._lines) or 1)
            got = PLACE.sub("", str(error)).strip() or "tables inside too many others"
            text = sentence(self._place(line), "TOML", got, "mend that line")
            raise HarnessError(text) from error

    def line(self, *key: str | int) -> int:
        """Return the line at which a key begins, or its table if there is no such key.

        Inside a statement of several lines, this is the statement's first line.
        """
        for length in range(len(key), 0, -1):
            if key[:length] in self._begins:
                return self._begins[key[:length]]
        return 1

    def error(
        self, key: Key, expected: str, got: object, remedy: str = "change it there"
    ) -> HarnessError:
        """Return the error of a key: file, line, key, what is allowed, what was found.

        ``got`` is written with ``repr``, unless it is a text.
        """
        written = got if isinstance(got, str) else repr(got)
        place = self._place(self.line(*key))
        subject = f"{place}: {dotted(key)}" if key else place
        return HarnessError(sentence(subject, expected, written, remedy))

    def unknown(
        self, key: Key, kind: str, allowed: Collection[str], name: str | None = None
    ) -> HarnessError:
        """Return the error of a name that is not allowed. It suggests the nearest.

        The name is the text at ``key``, else the key itself, unless ``name`` is given.
        """
        value = self.value(key)
        known = value if isinstance(value, str) else key[-1]
        text = unknown_name(kind, known if name is None else name, allowed)
        return HarnessError(f"{self._place(self.line(*key))}: {text}")

    def require(
        self, claim: bool, key: Key, expected: str, remedy: str = "change it there"
    ) -> None:
        """Raise the error of a key unless ``claim`` holds."""
        if not claim:
            raise self.error(key, expected, _shown(self.value(key)), remedy)

    def require_keys(
        self, key: Key, allowed: Collection[str], required: Collection[str] = ()
    ) -> None:
        """Raise unless the table at ``key`` has only valid keys and all required ones.

        Raises:
            HarnessError: no table, an unknown key, or one of ``required`` is missing.
        """
        table = self.value(key)
        self.require(isinstance(table, Mapping), key, "a table")
        for name in table:
            if name not in allowed:
                place = self._place(self.line(*key, name))
                within = f" of {dotted(key)}" if key else ""
                text = unknown_name(f"key{within}", name, allowed)
                raise HarnessError(f"{place}: {text}")
        for name in required:
            if name not in table:
                expected = f"a key of this name, beside {', '.join(table) or 'others'}"
                raise self.error((*key, name), expected, "none", "write it there")

    def value(self, key: Key) -> Any:
        """Return the value at a key, or None if there is none."""
        value: Any = self.content
        for name in key:
            try:
                value = value[name]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def placed(
        self, error: LockstepError | HarnessError, key: Key = ()
    ) -> HarnessError:
        """Return an error about the content, extended by file and line.

        The line is that of the first name in the error that the file contains: a quoted
        text, or a part of the error's subject. Otherwise it is the line of ``key``.
        """
        text = str(error)
        quoted = [one or other for one, other in QUOTED.findall(text)]
        subject = re.findall(r"[\w-]+", text.partition("expected")[0])
        names = [*quoted, *reversed(subject)]
        line = next(filter(None, map(self._line_of, names)), None)
        return HarnessError(f"{self._place(line or self.line(*key))}: {text}")

    def _place(self, line: int) -> str:
        return f"{self.name}, line {line}"

    def _line_of(self, name: str) -> int | None:
        """Return the first line that contains a name outside its comment."""
        word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
        for number, line in enumerate(self._lines, start=1):
            if word.search(line.partition("#")[0]):
                return number
        return None

    @cached_property
    def _begins(self) -> dict[Key, int]:
        """The line at which each key begins."""
        begins: dict[Key, int] = {}
        start = 1
        for number in range(1, len(self._lines) + 1):
            try:
                content = tomllib.loads("".join(self._lines[:number]))
            except tomllib.TOMLDecodeError:
                continue
            for key in _keys(content):
                begins.setdefault(key, start)
            start = number + 1
        return begins


def dotted(key: Key) -> str:
    """Format a key as in TOML: ``row[2].goal``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in key]
    return "".join(parts).removeprefix(".")


def _keys(content: Any, above: Key = ()) -> Iterator[Key]:
    """Yield the key of every value. Tables and lists come before their contents."""
    entries = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in entries:
        key = (*above, name)
        yield key
        if isinstance(value, dict | list):
            yield from _keys(value, key)


def _shown(value: Any) -> str:
    return "none" if value is None else repr(value)
