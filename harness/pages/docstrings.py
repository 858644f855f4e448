"""An extension of Griffe that prepares docstrings for the API pages.

Sphinx roles become links, and doctests become code. Arguments that share a description
get a copy each.
"""

from __future__ import annotations

import re
from typing import Any

import griffe  # type: ignore[import-not-found]

ROLE = re.compile(r":(?:py:)?(?:class|func|meth|mod|data|attr|exc):`(~?)([\w.]+)`")
ARGUMENTS = re.compile(r"^Args:\n((?:    .*\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^    (\S[^:]*): ", re.MULTILINE)
EXAMPLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)
SHARED = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +.*)*)$", re.MULTILINE)
STARS = {"args": "*args", "kwargs": "**kwargs"}


class Docstrings(griffe.Extension):  # type: ignore[misc]
    """Rewrites each docstring after Griffe has read it."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is None:
            return
        names = [each.name for each in getattr(obj, "parameters", ())]
        # The reference takes TensorFlow 1's arguments as ``*args`` and ``**kwargs``.
        takes_any = {"args", "kwargs"} <= set(names)
        text = as_list(obj.docstring.value) if takes_any else obj.docstring.value
        obj.docstring.value = as_markdown(text)


def as_list(text: str) -> str:
    """Return arguments as a list; Griffe warns of ones that no signature has."""
    return ARGUMENTS.sub(_listed, text)


def _listed(match: re.Match[str]) -> str:
    entries = match[1].replace("\n        ", "\n  ")
    heading = "The arguments are ``strict`` and those of TensorFlow 1:"
    return f"{heading}\n\n{ENTRY.sub(_item, entries)}"


def _item(match: re.Match[str]) -> str:
    return f"- `{match[1]}`: "


def as_markdown(text: str) -> str:
    """Turn our docstring format into the one that Griffe and Markdown read."""
    text = SHARED.sub(_one_each, text)
    return EXAMPLE.sub(r"\1Examples:", ROLE.sub(_link, text))


def _link(match: re.Match[str]) -> str:
    """Return a name as code, with a link if it is a full name of Lockstep."""
    short, name = match.groups()
    shown = f"<code>{name.rsplit('.', 1)[-1] if short else name}</code>"
    if not name.startswith("lockstep."):
        return shown
    return f'<autoref optional identifier="{name}">{shown}</autoref>'


def _one_each(match: re.Match[str]) -> str:
    """Repeat a shared description for each of its arguments."""
    pad, names, text = match.groups()
    return "\n".join(f"{pad}{STARS.get(n, n)}: {text}" for n in names.split(", "))
