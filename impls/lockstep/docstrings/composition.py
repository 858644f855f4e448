"""One docstring of two: what all backends share, and what one of them adds."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Parts", "complete", "parts_of"]

SECTIONS = ("Args", "Attributes", "Returns", "Raises")
HEADING = re.compile(r"(Args|Attributes|Returns|Raises|Example):")
NAMED = re.compile(r"([A-Z]\w+): ")
GOES_ON = "..."
ENTRY = re.compile(r"    (\S[^:]*): ")


class Parts(NamedTuple):
    """The parts of a docstring.

    Attributes:
        head: the paragraphs before the first section.
        sections: name of a section -> name of an entry -> its lines.
        tail: the paragraphs after it, such as the origin, by their first word.
    """

    head: list[str]
    sections: dict[str, dict[str, str]]
    tail: dict[str, str]


def complete(own: str | None, shared: str, parameters: Sequence[str]) -> str:
    """Return the docstring of a backend, completed with what all backends share.

    Entries of arguments and named paragraphs such as the origin are those of both; one
    of the backend's own takes precedence. Of any other part the backend has its own, or
    that of all. A docstring that begins with ``...`` goes on after the first paragraphs
    of all.

    Args:
        own: the docstring of a backend.
        shared: the docstring for all backends.
        parameters: the names of the arguments in their order. An entry of another
            argument is left out of ``shared``.

    Example:
        >>> shared = "Add.\\n\\nArgs:\\n    a: a number.\\n    b: another."
        >>> own = "...\\n\\nIn float32.\\n\\nArgs:\\n    b: a tensor."
        >>> print(complete(own, shared, ["a", "b"]))
        Add.
        <BLANKLINE>
        In float32.
        <BLANKLINE>
        Args:
            a: a number.
            b: a tensor.
    """
    first, second = parts_of(shared), parts_of(own or "")
    blocks = _heads(first.head, second.head)
    arguments = _arguments(first, second, parameters)
    for name in SECTIONS:
        entries = second.sections.get(name) or first.sections.get(name, {})
        if entries := arguments if name == "Args" else entries:
            blocks.append("\n".join([f"{name}:", *entries.values()]))
    blocks += (first.tail | second.tail).values()
    example = second.sections.get("Example", {})
    blocks += ["\n".join(["Example:", *example.values()])] if example else []
    return "\n\n".join(blocks)


def _heads(shared: list[str], own: list[str]) -> list[str]:
    """Return the first paragraphs: those shared, one's own, or one's own after them."""
    if own[:1] == [GOES_ON]:
        return [*shared, *own[1:]]
    return own or shared


def _arguments(
    first: Parts, second: Parts, parameters: Sequence[str]
) -> dict[str, str]:
    """Return the entries of both in the order of the arguments."""
    own = second.sections.get("Args", {})
    shared = first.sections.get("Args", {})
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
            is_list = section == "Args"
            parts.sections[section] = _entries(body) if is_list else {"": body}
        elif section:
            named = NAMED.match(block)
            parts.tail[named[1] if named else block] = block
        elif block:
            named = NAMED.match(block)
            if named and named[1] in ("Origin", "Paper", "State", "Cost"):
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
        if match:
            name = match[1]
            entries[name] = line
        else:
            entries[name] = f"{entries[name]}\n{line}" if name in entries else line
    return entries
