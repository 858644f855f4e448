"""TOML files, checked by pydantic, whose errors name the file and the key."""

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


def wrong(text: str, *key: str | int) -> PydanticCustomError:
    """Return the error of a validator: its sentence, and the key below its table."""
    return PydanticCustomError("wrong", "{text}", {"text": text, "key": key})


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
    """The content of a TOML file, and errors that name its keys.

    Raises:
        HarnessError: the file cannot be read, or is not valid TOML.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            self.content: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
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
            error: Any = invalid.errors()[0]
        key = (*above, *error["loc"], *error.get("ctx", {}).get("key", ()))
        raise HarnessError(f"{self.name}: {said(error, key)}")


def said(error: Any, key: Key) -> str:
    """Return one of pydantic's errors about a key as a sentence."""
    text: str = error.get("ctx", {}).get("text", "")
    if not text:
        got = "" if error["type"] == "missing" else f", got {error['input']!r}"
        text = f"{error['msg']}{got}."
    return f"{dotted(key)}: {text}" if key else text


def dotted(key: Key) -> str:
    """Format a key as in TOML: ``row[2].goal``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in key]
    return "".join(parts).removeprefix(".")


def leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting with its dotted path."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
