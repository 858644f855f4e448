"""The catalogue of differences: its contents, and the page of recorded values."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape

from harness.errors import HarnessError
from harness.pages.templating import render
from harness.parity.catalogue import MARKS, Entry, Quoted, entries
from harness.processes.children import ROOT
from lockstep.errors import sentence
from lockstep.registry import BACKENDS

PAGE = ROOT / "docs" / "differences.md"
COMMAND = ".venv/bin/nox -s parity -- --quotes"
HEADING = re.compile(r"^(##+) (.+?)(?: \{ #([\w-]+) \})?$", re.MULTILINE)

SENTENCE = re.compile(r"^\*\*(\w+):\*\* (.+?[.])(?=\s+[A-Z`]|\s*$)", re.M | re.S)
"""The first sentence about a mode in a section."""


class Section(NamedTuple):
    """A section of the page, with its first sentence about each mode."""

    part: str
    title: str
    anchor: str
    strict: str
    default: str


def contents_insert() -> str:
    """Return the table of contents of docs/differences.md."""
    return _contents(sections(PAGE.read_text("utf-8")))


def recorded_page(results: Path) -> str:
    """Return the page of recorded values: of each difference, in the page's order."""
    quotes = read_quotes(results / "parity")
    titles = {s.anchor: s.title for s in sections(PAGE.read_text("utf-8"))}
    known = {entry.anchor: entry for entry in entries()}
    rows = [
        (title, known[anchor], *_recorded(known[anchor], quotes))
        for anchor, title in titles.items()
        if anchor in known
    ]
    return render("recorded_values.md.jinja", rows=rows)


def sections(page: str) -> list[Section]:
    """Return the sections that have an anchor, in the order of the page."""
    result, part = [], ""
    headings = [*HEADING.finditer(page)]
    ends = [heading.start() for heading in headings[1:]] + [len(page)]
    for heading, end in zip(headings, ends, strict=True):
        level, title, anchor = heading.groups()
        if level == "##":
            part = title
        if anchor:
            modes = _modes(page[heading.end() : end])
            result.append(Section(part, title, anchor, *modes))
    return result


def _modes(text: str) -> tuple[str, str]:
    """Return the first sentences about strict mode and about the default mode."""
    first = {name: " ".join(said.split()) for name, said in SENTENCE.findall(text)}
    if "Both" in first:
        return first["Both"], "the same"
    return first["strict"], first["Default"]


def read_quotes(folder: Path) -> list[Quoted] | None:
    """Read the output of the catalogue command; None if it has not been run yet."""
    path = folder / "catalogue.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content, list):
            raise TypeError(f"a {type(content).__name__}")
        return [Quoted(**quoted) for quoted in content]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        got = f"{type(error).__name__} ({error})"
        subject = f"{folder.name}/{path.name}"
        text = sentence(subject, "a list of quotes", got, f"write it anew: {COMMAND}")
        raise HarnessError(text) from error


def _contents(headings: Sequence[Section]) -> str:
    does = {entry.anchor: entry.does for entry in entries()}
    rows = [
        (
            section,
            [
                _inline(text)
                for text in (section.title, section.strict, section.default)
            ],
            does.get(section.anchor, ()),
        )
        for section in headings
    ]
    return render("differences.html.jinja", rows=rows, marks=MARKS)


def _recorded(entry: Entry, quotes: Sequence[Quoted] | None) -> tuple[Markup, str]:
    """Return the table of recorded cases, or why there is none."""
    own = [quoted for quoted in quotes or () if quoted.anchor == entry.anchor]
    if not own:
        return Markup(""), entry.not_recorded or f"not replayed yet: {COMMAND}"
    return Markup(render("recorded.html.jinja", quotes=own, backend=_backend)), ""


def _inline(text: str) -> Markup:
    """Return a line with its inline code as HTML."""
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", str(escape(text))))


def _backend(name: str) -> str:
    """Return a backend's name as in the other tables; the reference has none."""
    backend, _, mode = name.partition(":")
    if backend == "reference":
        return ""
    chosen = mode or BACKENDS[backend].modes[0]
    return f"{backend} {chosen}" if len(BACKENDS[backend].modes) > 1 else backend
