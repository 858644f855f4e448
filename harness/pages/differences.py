"""The catalogue of differences as inserts: the contents, and each entry's evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape

from harness.errors import HarnessError
from harness.pages.templating import render
from harness.parity.catalogue import MARKS, Entry, entries
from harness.parity.quotes import Quoted
from lockstep.messages.errors import sentence
from lockstep.registry import BACKENDS

__all__ = ["COMMAND", "Section", "differences_inserts", "read_quotes", "sections"]

COMMAND = ".venv/bin/nox -s catalogue"
HEADING = re.compile(r"^(##+) (.+?)(?: \{ #([\w-]+) \})?$", re.MULTILINE)


class Section(NamedTuple):
    """A section of the page: the part that it stands in, its title and its anchor."""

    part: str
    title: str
    anchor: str


def differences_inserts(root: Path, results: Path) -> dict[str, str]:
    """Return the contents of the page and, for each entry, the insert ``difference_``.

    An entry has what its script prints, what was recorded, and the script.
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
    for level, title, anchor in HEADING.findall(page):
        if level == "##":
            part = title
        if anchor:
            result.append(Section(part, title, anchor))
    return result


def read_quotes(folder: Path) -> list[Quoted] | None:
    """Read what the catalogue command wrote; None if it has not been run yet."""
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
    parts: dict[str, list[tuple[str, Markup, Sequence[str]]]] = {}
    for part, title, anchor in headings:
        marks = does.get(anchor, ())
        parts.setdefault(part, []).append((anchor, _inline(title), marks))
    return render("differences.html.jinja", parts=parts, marks=MARKS)


def _evidence(entry: Entry, quotes: Sequence[Quoted] | None, folder: Path) -> str:
    """Return the recorded cases, and a script with what it prints.

    What it prints is folded away with it where recorded cases say the same.
    """
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
        shown=not own or "race" in entry.does,
    )


def _inline(title: str) -> Markup:
    """Turn the code in a title into HTML."""
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", str(escape(title))))


def _backend(name: str) -> str:
    """Name a backend as the other tables do; the reference has no name."""
    backend, _, mode = name.partition(":")
    if backend == "reference":
        return ""
    chosen = mode or BACKENDS[backend].modes[0]
    return f"{backend} {chosen}" if len(BACKENDS[backend].modes) > 1 else backend
