"""The table of contents of docs/differences.md."""

from __future__ import annotations

import re
from typing import NamedTuple

from markupsafe import Markup, escape

from harness.pages.templating import render
from harness.processes.children import ROOT

PAGE = ROOT / "docs" / "differences.md"
HEADING = re.compile(r"^(##+) (.+?)(?: \{ #([\w-]+)((?: \.\w+)+) \})?$", re.MULTILINE)

SENTENCE = re.compile(r"^\*\*(\w+):\*\* (.+?[.])(?=\s+[A-Z`]|\s*$)", re.M | re.S)
"""The first sentence about a mode in a section."""

MARKS = {
    "kept": "the default does what the original did",
    "fixed": "the default does what the original should have done",
    "refused": "the default raises an error at once",
    "own": "Keras 3 follows a rule of its own",
    "race": "the original gave one of several results, and ours is always the same",
}
"""What the default does instead of the original's behaviour: a class of a heading."""


class Section(NamedTuple):
    """A section of the page: its marks, and its first sentence about each mode."""

    part: str
    title: str
    anchor: str
    marks: list[str]
    strict: str
    default: str


def contents_insert() -> str:
    """Return the table of contents."""
    rows = [
        (section, [_inline(text) for text in (section.title, *section[-2:])])
        for section in sections(PAGE.read_text("utf-8"))
    ]
    return render("differences.html.jinja", rows=rows, meanings=MARKS)


def sections(page: str) -> list[Section]:
    """Return the sections that have an anchor, in the order of the page."""
    result, part = [], ""
    headings = [*HEADING.finditer(page)]
    ends = [heading.start() for heading in headings[1:]] + [len(page)]
    for heading, end in zip(headings, ends, strict=True):
        level, title, anchor, marks = heading.groups()
        if level == "##":
            part = title
        if anchor:
            modes = _modes(page[heading.end() : end])
            named = marks.replace(".", "").split()
            result.append(Section(part, title, anchor, named, *modes))
    return result


def _modes(text: str) -> tuple[str, str]:
    """Return the first sentences about strict mode and about the default mode."""
    first = {name: " ".join(said.split()) for name, said in SENTENCE.findall(text)}
    if "Both" in first:
        return first["Both"], "the same"
    return first["strict"], first["Default"]


def _inline(text: str) -> Markup:
    """Return a line with its inline code as HTML."""
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", str(escape(text))))
