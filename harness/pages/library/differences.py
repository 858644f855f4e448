"""Inserts of the catalogue of differences: its contents and each entry's evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape

from harness.errors import HarnessError
from harness.pages.markup.templating import render
from harness.parity.catalogue import MARKS, Entry, entries
from harness.parity.quotes import Quoted
from lockstep.errors import sentence
from lockstep.registry import BACKENDS

__all__ = ["COMMAND", "Section", "differences_inserts", "read_quotes", "sections"]

COMMAND = ".venv/bin/nox -s catalogue"
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


def differences_inserts(root: Path, results: Path) -> dict[str, str]:
    """Return the page's contents, and an insert ``difference_SCRIPT`` for each entry.

    An entry shows its script, the output of the script, and the recorded cases.
    """
    quotes = read_quotes(results / "parity")
    folder = root / "docs" / "examples" / "differences"
    page = (root / "docs" / "differences.md").read_text("utf-8")
    inserts = {
        f"difference_{entry.script}": _evidence(entry, quotes, folder)
        for entry in entries()
    }
    return {"differences_contents": _contents(sections(page)), **inserts}


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


def _evidence(entry: Entry, quotes: Sequence[Quoted] | None, folder: Path) -> str:
    """Return the recorded cases, and the collapsed script with its output."""
    script = folder / f"{entry.script}.py"
    own = [quoted for quoted in quotes or () if quoted.anchor == entry.anchor]
    recorded = (
        render("recorded.html.jinja", quotes=own, backend=_backend) if own else ""
    )
    table = Markup(recorded)
    return render(
        "difference.md.jinja",
        code=script.read_text("utf-8"),
        printed=script.with_suffix(".out").read_text("utf-8"),
        does={mark: MARKS[mark] for mark in entry.does},
        recorded=table,
        missing="" if own else entry.not_recorded or f"not replayed yet: {COMMAND}",
    )


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
