"""TOML files, checked by pydantic, whose errors name the file, the line and the key.

The line of a key is computed by parsing the file statement by statement. A statement
ends where the lines so far are valid TOML. Its new keys begin at its first line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from harness.errors import HarnessError
from lockstep.errors import sentence, unknown_name

Key: TypeAlias = tuple[str | int, ...]
"""Path of a value: ``("row", 2, "goal")`` is ``goal`` of the third ``[[row]]``."""

PLACE = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)")
QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
WRONG, ANYWHERE = "wrong", "anywhere"


def wrong(text: str, *key: str | int) -> PydanticCustomError:
    """Return the error of a validator: its sentence, and the key below its table.

    A text that begins with "expected" gets the key as its subject.
    """
    return PydanticCustomError(WRONG, "{text}", {"text": text, "key": key})


def anywhere(error: Exception, *key: str | int) -> PydanticCustomError:
    """Return an error about settings; its line is that of a name in it, or of a key."""
    return PydanticCustomError(ANYWHERE, "{text}", {"text": str(error), "key": key})


def one_of(kind: str, known: Iterable[str]) -> AfterValidator:
    """Return a check that a text is a known name; the error suggests the nearest."""

    def check(name: Any) -> Any:
        if name not in known:
            raise wrong(str(unknown_name(kind, name, known)))
        return name

    return AfterValidator(check)


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Count = Annotated[int, Field(strict=True, gt=0)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


class Table(BaseModel):
    """A table of a file; it refuses unknown keys and suggests the nearest."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, arbitrary_types_allowed=True
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, content: Any) -> Any:
        if cls.model_config.get("extra") == "forbid" and isinstance(content, Mapping):
            for name in content:
                known = [f.alias or n for n, f in cls.model_fields.items()]
                if name not in (*known, *cls.model_fields):
                    raise wrong(str(unknown_name("key", name, known)), name)
        return content


Model = TypeVar("Model", bound=Table)


class TomlFile:
    """The content of a TOML file, and errors that name its lines.

    Raises:
        HarnessError: the file cannot be read, or is not valid TOML.
    """

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            remedy = "write the file as TOML in UTF-8"
            got = getattr(error, "strerror", None) or str(error)
            raise HarnessError(sentence(str(path), "TOML", got, remedy)) from error
        self.name, self._lines = path.name, text.splitlines(keepends=True)
        try:
            self.content: dict[str, Any] = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            match = PLACE.search(str(error))
            line = int((match and match[1]) or len(self._lines) or 1)
            got = PLACE.sub("", str(error)).strip() or "tables inside too many others"
            place = f"{self.name}, line {line}"
            raise HarnessError(sentence(place, "TOML", got, "mend that line")) from None

    def checked(self, model: type[Model], content: Any, *above: str | int) -> Model:
        """Return a table as its model.

        Args:
            content: the table, which may have values that are not in the file.
            above: its key in the file.

        Raises:
            HarnessError: the table is invalid; of several errors, the first by line.
        """
        try:
            return model.model_validate(content)
        except ValidationError as invalid:
            errors = [self._placed(error, above) for error in invalid.errors()]
        line, text = min(errors, key=lambda error: error[0])
        raise HarnessError(f"{self.name}, line {line}: {text}")

    def _placed(self, error: Any, above: Key) -> tuple[int, str]:
        """Return the line of one of pydantic's errors, and its sentence."""
        context = error.get("ctx", {})
        key = (*above, *error["loc"], *context.get("key", ()))
        if error["type"] == ANYWHERE:
            return self._line_in(context["text"]) or self.line(*key), context["text"]
        return self.line(*key), said(error, key)

    def line(self, *key: str | int) -> int:
        """Return the line at which a key begins, or its table if there is no such key.

        Inside a statement of several lines, this is the statement's first line.
        """
        for length in range(len(key), 0, -1):
            if key[:length] in self._begins:
                return self._begins[key[:length]]
        return 1

    def _line_in(self, text: str) -> int | None:
        """Return the line of the first name in a text that the file contains.

        Names are what the text quotes, and the parts of its subject.
        """
        quoted = [one or other for one, other in QUOTED.findall(text)]
        subject = re.findall(r"[\w-]+", text.partition("expected")[0])
        for name in (*quoted, *reversed(subject)):
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


def said(error: Any, key: Key) -> str:
    """Return one of pydantic's errors about a key as a sentence."""
    text: str = error.get("ctx", {}).get("text", "")
    if text:
        return f"{dotted(key)}: {text}" if text.startswith("expected") else text
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "missing":
        beside = ", ".join(error["input"]) or "others"
        expected = f"a key of this name, beside {beside}"
        return sentence(dotted(key), expected, "none", "write it there")
    got = "a table" if isinstance(error["input"], dict) else repr(error["input"])
    expected = error["msg"].replace("Input should be", "expected")
    expected = re.sub(r"^expected (greater|less)", r"expected a number \1", expected)
    expected = expected.replace("valid dictionary", "table")
    expected = expected.replace("valid integer", "whole number").replace("valid ", "")
    return f"{dotted(key)}: {expected}, got {got}; change it there."


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


def leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting with its dotted path."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
