"""Merging a shared docstring with a backend's own docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Parts", "complete", "parts_of"]

SECTIONS = ("Args", "Attributes", "Returns", "Raises")
HEADING = re.compile(r"(Args|Attributes|Returns|Raises|Example):")
NAMED = re.compile(r"([A-Z]\w+): ")
TAIL = ("Origin", "Paper", "State", "Slots", "Cost")
"""First words of paragraphs that follow the sections, even if there are none."""
LAST = ("Origin", "Paper")
"""First words of the paragraphs that come last."""
SHARED = "..."
ENTRY = re.compile(r"    (\S[^:]*): ")


class Parts(NamedTuple):
    """The parts of a docstring.

    Attributes:
        head: the paragraphs before the first section.
        sections: name of a section -> name of an entry -> its lines.
        tail: the paragraphs after the sections, such as the origin, by first word.
    """

    head: list[str]
    sections: dict[str, dict[str, str]]
    tail: dict[str, str]


def complete(own: str | None, shared: str, parameters: Sequence[str] | None) -> str:
    """Return the docstring of a backend, completed with the shared docstring.

    A paragraph ``...`` is replaced by the shared paragraphs; after a first line of the
    backend's own, by those after the shared first line. Argument entries and named
    paragraphs, such as the origin, of both docstrings are merged, and the backend's own
    take precedence. In other sections an entry ``...`` is replaced by the shared
    entries. Parts that the backend's docstring lacks are copied from the shared one.

    Args:
        own: the docstring of a backend.
        shared: the docstring for all backends.
        parameters: the names of the arguments in order. Shared entries for other
            arguments are omitted. None omits no entry.

    Example:
        >>> shared = "Add.\\n\\nTwice.\\n\\nArgs:\\n    a: a number.\\n    b: another."
        >>> own = "Add tensors.\\n\\n...\\n\\nArgs:\\n    b: a tensor."
        >>> print(complete(own, shared, ["a", "b"]))
        Add tensors.
        <BLANKLINE>
        Twice.
        <BLANKLINE>
        Args:
            a: a number.
            b: a tensor.
    """
    first, second = parts_of(shared), parts_of(own or "")
    blocks = _heads(first.head, second.head)
    for name in SECTIONS:
        entries = _section(name, first, second, parameters)
        blocks += ["\n".join([f"{name}:", *entries.values()])] if entries else []
    tail = first.tail | second.tail
    blocks += [tail[name] for name in sorted(tail, key=LAST.__contains__)]
    example = (first.sections | second.sections).get("Example", {})
    blocks += ["\n".join(["Example:", *example.values()])] if example else []
    return "\n\n".join(blocks)


def _heads(shared: list[str], own: list[str]) -> list[str]:
    """Return the own first paragraphs, with ``...`` replaced by the shared ones."""
    if SHARED not in own:
        return own or shared
    place = own.index(SHARED)
    return own[:place] + shared[min(place, 1) :] + own[place + 1 :]


def _section(
    name: str, first: Parts, second: Parts, parameters: Sequence[str] | None
) -> dict[str, str]:
    """Return the merged entries of a section."""
    shared, own = first.sections.get(name, {}), second.sections.get(name, {})
    if name == "Args":
        return _arguments(shared, own, parameters)
    if SHARED not in own:
        return own or shared
    return {**shared, **{key: e for key, e in own.items() if key != SHARED}}


def _arguments(
    shared: dict[str, str], own: dict[str, str], parameters: Sequence[str] | None
) -> dict[str, str]:
    """Return the merged entries in the order of the arguments."""
    if parameters is None:
        return shared | own
    known = {name: e for name, e in shared.items() if name.split(", ")[0] in parameters}
    places = {name: place for place, name in enumerate(parameters)}
    entries = known | own
    names = sorted(entries, key=lambda key: places.get(key.split(", ")[0], len(places)))
    return {name: entries[name] for name in names}


def parts_of(docstring: str) -> Parts:
    """Split a docstring at its headings and empty lines."""
    parts = Parts([], {}, {})
    section = ""
    for block in re.split(r"\n\n(?=\S)", inspect.cleandoc(docstring)):
        heading = HEADING.match(block)
        if heading:
            section = heading[1]
            body = block[heading.end() :].lstrip("\n")
            is_list = section in ("Args", "Attributes", "Raises")
            parts.sections[section] = _entries(body) if is_list else {"": body}
        elif section:
            named = NAMED.match(block)
            parts.tail[named[1] if named else block] = block
        elif block:
            named = NAMED.match(block)
            if named and named[1] in TAIL:
                parts.tail[named[1]] = block
            else:
                parts.head.append(block)
    return parts


def _entries(body: str) -> dict[str, str]:
    """Return the entries of a section, each with the lines that continue it."""
    entries: dict[str, str] = {}
    name = ""
    for line in body.splitlines():
        match = ENTRY.match(line)
        if match or line.strip() == SHARED:
            name = match[1] if match else SHARED
            entries[name] = line
        else:
            entries[name] = f"{entries[name]}\n{line}" if name in entries else line
    return entries
