"""TOML files, checked by pydantic, whose errors name the file, the line and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
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

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Count = Annotated[int, Field(strict=True, gt=0)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


def wrong(text: str, *key: str | int) -> PydanticCustomError:
    """Return the error of a validator: its sentence, and the key below its table."""
    return PydanticCustomError("wrong", "{text}", {"text": text, "key": key})


def require_known(kind: str, name: str, known: Iterable[str], *key: str | int) -> None:
    """Raise, with the nearest name, unless a name is known."""
    if name not in known:
        raise wrong(str(unknown_name(kind, name, known)), *key)


def one_of(kind: str, known: Iterable[str]) -> AfterValidator:
    """Return a check that a text is a known name."""

    def check(name: Any) -> Any:
        require_known(kind, name, known)
        return name

    return AfterValidator(check)


class Table(BaseModel):
    """A table of a file; it refuses unknown keys and suggests the nearest."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, arbitrary_types_allowed=True
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, content: Any) -> Any:
        if cls.model_config.get("extra") == "forbid" and isinstance(content, Mapping):
            known = [field.alias or n for n, field in cls.model_fields.items()]
            for name in content:
                if name not in cls.model_fields:
                    require_known("key", name, known, name)
        return content


Model = TypeVar("Model", bound=Table)


class TomlFile:
    """The content of a TOML file, and errors that name its lines and keys.

    Raises:
        HarnessError: the file cannot be read, or is not valid TOML.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            self.text = path.read_text("utf-8")
            self.content: dict[str, Any] = tomllib.loads(self.text)
        except (OSError, ValueError, RecursionError) as error:
            remedy = "write the file as TOML in UTF-8"
            got = getattr(error, "strerror", None) or str(error)
            raise HarnessError(sentence(self.name, "TOML", got, remedy)) from error

    def checked(self, model: type[Model], content: Any, *above: str | int) -> Model:
        """Return a table as its model.

        Args:
            content: the table, which may have values that are not in the file.
            above: its key in the file.

        Raises:
            HarnessError: the table is invalid; the sentence is about the first error.
        """
        try:
            return model.model_validate(content)
        except ValidationError as invalid:
            key, text = first_error(invalid)
        key = (*above, *key)
        place = f"line {self.line(key)}, {dotted(key)}: " if key else ""
        raise HarnessError(f"{self.name}: {place}{text}")

    def line(self, key: Key) -> int:
        """Return the line of a key, or of the table above it if it is missing.

        The file is read up to each line: the first part that has the key ends there.
        """
        lines, begins, deepest, place = self.text.splitlines(), 1, 0, 1
        for end in range(1, len(lines) + 1):
            try:
                content = tomllib.loads("\n".join(lines[:end]))
            except tomllib.TOMLDecodeError:
                continue  # within a value of several lines
            depth = depth_of(key, content)
            if depth > deepest:
                deepest, place = depth, begins
            begins = end + 1
        return place


def depth_of(key: Key, content: Any) -> int:
    """Return how many parts of a key there are in a table."""
    for depth, part in enumerate(key):
        try:
            content = content[part]
        except (LookupError, TypeError):
            return depth
    return len(key)


def first_error(invalid: ValidationError) -> tuple[Key, str]:
    """Return the key and the sentence of the first of pydantic's errors."""
    error: Any = invalid.errors()[0]
    context = error.get("ctx", {})
    key = (*error["loc"], *context.get("key", ()))
    if error["type"] == "wrong":
        return key, context["text"]
    if error["type"] == "value_error":  # one of Lockstep's
        return key, str(context["error"])
    got = "" if error["type"] == "missing" else f", got {error['input']!r}"
    return key, f"{error['msg']}{got}."


def dotted(key: Key) -> str:
    """Format a key as in TOML: ``row[2].goal``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in key]
    return "".join(parts).removeprefix(".")


def flat(content: Any) -> Any:
    """Return a table with the dotted paths of its settings; others as they are."""
    return dict(leaves(content)) if isinstance(content, Mapping) else content


def leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting with its dotted path."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
