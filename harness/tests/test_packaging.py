"""What the package declares of itself is what README and CHANGELOG say of it."""

from __future__ import annotations

import datetime
import re
import tomllib

from harness.processes.children import ROOT
from lockstep import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
README = (ROOT / "README.md").read_text("utf-8")
CHANGES = (ROOT / "CHANGELOG.md").read_text("utf-8")
SECTIONS = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", CHANGES, re.MULTILINE)


def test_the_readme_names_the_distribution_and_every_extra() -> None:
    (section,) = re.findall(r"^## Install it\n(.*?)^## ", README, re.DOTALL | re.M)
    assert f"`{PROJECT['name']}`" in section
    unnamed = [
        extra
        for extra in PROJECT["optional-dependencies"]
        if f"`{extra}`" not in section
    ]
    assert unnamed == []


def test_the_version_has_a_dated_section_of_changes() -> None:
    (first, none), *released = SECTIONS
    assert (first, none) == ("Unreleased", "")
    assert released[0][0] == __version__
    for _, day in released:
        datetime.date.fromisoformat(day)


def test_no_subsection_of_changes_stands_twice_in_a_version() -> None:
    for section in re.split(r"^## ", CHANGES, flags=re.MULTILINE)[1:]:
        heads = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert len(heads) == len(set(heads)), section.splitlines()[0]
