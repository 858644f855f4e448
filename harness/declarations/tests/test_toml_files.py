"""Every error about a TOML file names its line, the key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.declarations.toml_files import TomlFile, dotted
from harness.errors import HarnessError
from lockstep.errors import unknown_name

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


@pytest.fixture
def file() -> TomlFile:
    return TomlFile.parse(TEXT, "x.toml")


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
    file: TomlFile, key: tuple[str | int, ...], line: int
) -> None:
    assert file.line(*key) == line


def test_a_key_is_written_as_in_toml() -> None:
    assert dotted(("row", 2, "goal")) == "row[2].goal"


def test_a_value_of_another_kind_names_its_key_and_line(file: TomlFile) -> None:
    with pytest.raises(HarnessError) as raised:
        file.require(False, ("scale", "std", "seeds"), "a text")
    expected = "x.toml, line 12: scale.std.seeds: expected a text, got 3; change it"
    assert str(raised.value).startswith(expected)


def test_an_unknown_key_names_its_line_and_the_nearest(file: TomlFile) -> None:
    with pytest.raises(HarnessError) as raised:
        file.require_keys(("part", 1), ["names", "goal"])
    assert str(raised.value).startswith("x.toml, line 18: key of part[1]: expected one")
    assert "did you mean 'names'?" in str(raised.value)


def test_a_missing_key_names_the_line_of_its_table(file: TomlFile) -> None:
    with pytest.raises(HarnessError, match=r"line 17: part\[1\]\.goal: expected a key"):
        file.require_keys(("part", 1), ["name", "goal"], required=["name", "goal"])


def test_a_text_is_no_table(file: TomlFile) -> None:
    with pytest.raises(HarnessError, match="line 1: title: expected a table, got 'A'"):
        file.require_keys(("title",), ["x"])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (HarnessError("seeds: expected more, got 3; add some."), 12),
        (HarnessError("part.name: expected 'one', got 'two'; ask."), 15),
        (unknown_name("name", "y", ["x", "z"]), 4),
        # What only a comment has is not there.
        (HarnessError("alpha: expected more, got none; add some."), 11),
    ],
)
def test_an_error_about_the_content_gets_the_line_that_it_names(
    file: TomlFile, error: HarnessError, line: int
) -> None:
    placed = str(file.placed(error, ("scale",)))
    assert placed == f"x.toml, line {line}: {error}"


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
def test_what_is_no_toml_names_its_line(text: str, line: int) -> None:
    if not line:
        assert TomlFile.parse(text, "x.toml").content == {}
        return
    with pytest.raises(HarnessError) as raised:
        TomlFile.parse(text, "x.toml")
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
