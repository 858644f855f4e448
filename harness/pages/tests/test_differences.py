"""Page, scripts and listed differences are the same; each section shows its own."""

from __future__ import annotations

import re

from harness.pages.differences import MARKS, PAGE, sections
from harness.parity.tables import differences
from harness.processes.children import ROOT

TEXT = PAGE.read_text("utf-8")
ANCHORS = [section.anchor for section in sections(TEXT)]


def test_every_section_shows_its_own_script_and_every_script_has_a_section() -> None:
    shown = re.findall(r"<!-- examples/differences/(\w+)\.py -->", TEXT)
    assert shown == [anchor.replace("-", "_") for anchor in ANCHORS]
    folder = ROOT / "docs" / "examples" / "differences"
    assert sorted(shown) == sorted(path.stem for path in folder.glob("*.py"))


def test_every_section_says_what_the_default_does() -> None:
    assert all(section.marks for section in sections(TEXT))
    assert {m for section in sections(TEXT) for m in section.marks} == set(MARKS)


def test_every_listed_difference_has_a_section() -> None:
    assert {listed.anchor for listed in differences()} <= set(ANCHORS)
