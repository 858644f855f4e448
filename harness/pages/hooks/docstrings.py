"""An extension of Griffe that prepares docstrings for the API pages.

Sphinx roles become links, and doctests become code. Arguments that share a description
get a copy each.
"""

from __future__ import annotations

import re
from typing import Any

import griffe  # type: ignore[import-not-found]

ROLE = re.compile(r":(?:py:)?(?:class|func|meth|mod|data|attr|exc):`(~?)([\w.]+)`")
EXAMPLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)
SHARED = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +.*)*)$", re.MULTILINE)
STARS = {"args": "*args", "kwargs": "**kwargs"}


class Docstrings(griffe.Extension):  # type: ignore[misc]
    """Rewrites each docstring after Griffe has read it."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


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
