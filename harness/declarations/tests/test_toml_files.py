"""Every error about a TOML file names its line, the key and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import model_validator

from harness.declarations.toml_files import (
    Count,
    Table,
    Text,
    TomlFile,
    anywhere,
    dotted,
)
from harness.errors import HarnessError

TEXT = '''\
title = "A"        # alpha
rows = [
    { name = "x" },
    { name = "y" },
]
note = """
[no]
table = 1
"""

[scale.std]
seeds = 3

[[part]]
name = "one"

[[part]]
name = "two"
'''


def file_of(folder: Path, text: str = TEXT) -> TomlFile:
    path = folder / "x.toml"
    path.write_text(text, "utf-8")
    return TomlFile(path)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("title",), 1),
        (("rows",), 2),
        (("rows", 1, "name"), 2),
        (("note",), 6),
        (("scale",), 11),
        (("scale", "std", "seeds"), 12),
        (("scale", "std", "missing"), 11),
        (("part", 0), 14),
        (("part", 1, "name"), 18),
        (("nowhere",), 1),
    ],
)
def test_a_key_has_the_line_at_which_it_begins(
    tmp_path: Path, key: tuple[str | int, ...], line: int
) -> None:
    assert file_of(tmp_path).line(*key) == line


def test_a_key_is_written_as_in_toml() -> None:
    assert dotted(("row", 2, "goal")) == "row[2].goal"


class Part(Table):
    name: Text
    size: Count = 1


class Whole(Table):
    part: list[Part]

    @model_validator(mode="after")
    def _refuse(self) -> Self:
        if self.part[0].name == "seeds":
            raise anywhere(HarnessError("seeds: expected more, got 3; add some."))
        return self


@pytest.mark.parametrize(
    ("part", "line", "told"),
    [
        ({"name": 3}, 15, "part[0].name: expected a string, got 3; change it there."),
        ({"names": "a"}, 14, "key: expected one of name, size, got 'names'; did you"),
        ({}, 15, "part[0].name: expected a key of this name, beside others, got none"),
        ("one", 14, "part[0]: expected a table or instance of Part, got 'one'"),
        ({"name": "one", "size": True}, 14, "part[0].size: expected a whole number,"),
        # The line is that of the name in the sentence.
        ({"name": "seeds"}, 12, "seeds: expected more, got 3; add some."),
    ],
)
def test_an_error_names_the_line_the_key_and_what_is_expected(
    tmp_path: Path, part: Any, line: int, told: str
) -> None:
    with pytest.raises(HarnessError) as raised:
        file_of(tmp_path).checked(Whole, {"part": [part]})
    assert str(raised.value).startswith(f"x.toml, line {line}: {told}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = \nc = 2\n", 2),
        ("a = 1\na = 2\n", 2),
        ("a = 1\n[b\n", 2),
        ('a = 1\nb = """\n', 2),
        ("", 0),
    ],
)
def test_what_is_no_toml_names_its_line(tmp_path: Path, text: str, line: int) -> None:
    if not line:
        assert file_of(tmp_path, text).content == {}
        return
    with pytest.raises(HarnessError) as raised:
        file_of(tmp_path, text)
    assert str(raised.value).startswith(f"x.toml, line {line}: expected TOML, got ")
    assert "(at" not in str(raised.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "x.toml"
    if content:
        path.write_bytes(content)
    with pytest.raises(HarnessError, match=r"x\.toml: expected TOML, got .*; write"):
        TomlFile(path)
