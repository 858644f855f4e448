"""CONTRIBUTING.md and the checkout: the map is complete, and every path exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep.registry import BACKENDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")

PLACEHOLDERS = re.compile(r"NAME|BACKEND|CAPABILITY|VERSION|KIND")
WRITTEN = {
    ".venv/bin/nox",
    ".envs/core",
    ".envs/site",
    "docs/generated/",
    "results/local/",
}
"""Paths of the page that commands write and Git ignores."""


def section(title: str) -> str:
    """Return the text of a section of the page."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def folders() -> set[str]:
    """Return the folders of ``impls`` and ``harness`` that hold Python modules."""
    modules = [p for top in ("impls", "harness") for p in (ROOT / top).rglob("*.py")]
    return {f"{path.parent.relative_to(ROOT).as_posix()}/" for path in modules}


def covers(entry: str, folder: str) -> bool:
    """Whether an entry of the map, perhaps with ``*``, is this folder."""
    pattern = re.escape(entry).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]+")
    return re.fullmatch(pattern, folder) is not None


ENTRIES = dict(
    re.findall(r"^\| `([^`]+)` \| (.+) \|$", section("Map of the packages"), re.M)
)


@pytest.mark.parametrize("folder", sorted(folders()))
def test_a_folder_with_modules_has_one_entry_on_the_map(folder: str) -> None:
    assert len([entry for entry in ENTRIES if covers(entry, folder)]) == 1


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_of_the_map_exists_and_has_one_sentence(entry: str) -> None:
    plain = "*" not in entry and (ROOT / entry).is_dir()
    assert plain or any(covers(entry, folder) for folder in folders())
    assert ENTRIES[entry].endswith(".")
    assert ". " not in ENTRIES[entry]


PATHS = sorted(
    {
        word
        for word in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PAGE)
        if "/" in word and " " not in word
    }
    - WRITTEN
    - ENTRIES.keys()
)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_the_recipes_name_exists(path: str) -> None:
    assert any(ROOT.glob(PLACEHOLDERS.sub("*", path)))


CONSTANTS = re.findall(r"`([A-Z_]+)`\s+in\s+`([\w/]+\.py)`", PAGE)


@pytest.mark.parametrize(("name", "path"), CONSTANTS)
def test_a_constant_that_the_recipes_name_is_in_its_file(name: str, path: str) -> None:
    assert re.search(rf"^{name}\b", (ROOT / path).read_text("utf-8"), re.M)


def test_a_wrapper_changes_few_files_that_exist() -> None:
    """The others are found in their folders, and no list names them."""
    paths = re.findall(r"^\| `(\S+)` \| .+ \|$", section("Add a wrapper"), re.M)
    backends = [path for path in paths if "BACKEND" in path]
    assert len(paths) + (len(BACKENDS) - 1) * len(backends) <= 13
    assert {"impls/lockstep/interface.py", "CHANGELOG.md"} < {*paths}
    assert not [path for path in paths if "NAME" in path]


@pytest.mark.parametrize("title", ["Add a wrapper", "Add a backend", "Fix a rule"])
def test_a_recipe_names_the_files_to_touch(title: str) -> None:
    assert len(re.findall(r"`[\w/*]+/[\w/*]*\.(?:py|toml|md)`", section(title))) > 8
