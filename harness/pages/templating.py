"""Fill in the templates of this folder.

Every text that a page's template shows is escaped here and nowhere else. So text from
an experiment file or a record is shown exactly as it was written. Intended markup is
``Markup``, or has the filter ``safe`` in the template.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

ACTIVE = re.compile(r"[&<>\"`*_{}\[\]$\\#]")
"""Characters that start markup anywhere in a line of Markdown or HTML."""

LEADING = re.compile(r"^[-+:;=!?~/|]")
"""Characters that start a block or a snippet at the beginning of a line."""


def render(template: str, **values: Any) -> str:
    """Return a filled-in template; a missing value is an error."""
    text = _ENVIRONMENT.get_template(template).render(**values)
    return text.strip("\n") + "\n"


def number(value: Any, digits: int = 4) -> str:
    """Return a number as text; NaN becomes a dash."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value)).replace("-", "−")
    return _plain(f"{value:.{digits}g}").replace("-", "−")


def fact(value: Any) -> str:
    """Return a value of a provenance as text, with nested values in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {fact(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple | set):
        return ", ".join(fact(inner) for inner in value) or "none"
    return "unknown" if value is None else number(value)


def as_text(text: str) -> Markup:
    """Escape a text for Markdown and for the resulting HTML.

    Characters that could start markup become character references, and line breaks
    become spaces. So the text cannot create a tag, link, formula, list or attribute, or
    include a snippet.
    """
    line = ACTIVE.sub(lambda match: f"&#{ord(match[0])};", _one_line(text).strip())
    return Markup(f"&#{ord(line[0])};{line[1:]}" if LEADING.match(line) else line)


def _one_line(text: str) -> str:
    return re.sub(r"\s*[\n\r\v\f\x85\u2028\u2029]\s*", " ", text)


def _plain(text: str) -> str:
    """Shorten an exponent: 1e-07 becomes 1e-7, 1e+08 becomes 1e8."""
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"


@jinja2.pass_eval_context
def _finalize(context: jinja2.nodes.EvalContext, value: Any) -> Any:
    """Escape a value for Markdown; in HTML templates Jinja does the escaping.

    HTML elements are not parsed as Markdown, but their lines are searched for snippets
    and fences. So line breaks are removed in both.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _one_line(value) if context.autoescape else as_text(value)


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=lambda name: name is not None and ".html" in name,
    finalize=_finalize,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(fact=fact, number=number)
