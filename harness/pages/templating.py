"""The templates beside this file, and how numbers are written in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

__all__ = ["fact", "number", "render"]


def render(template: str, **values: Any) -> str:
    """Fill in a template; a name that it uses and does not get is an error."""
    text = _ENVIRONMENT.get_template(template).render(**values)
    return text.strip("\n") + "\n"


def number(value: Any, digits: int = 4) -> str:
    """Write a number for a reader; what is missing becomes a dash."""
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
    """Write a value of a provenance: nested ones in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {fact(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple | set):
        return ", ".join(fact(inner) for inner in value) or "none"
    return "unknown" if value is None else number(value)


def _one_line(text: str) -> str:
    """Write a text so that it can stand in the brackets of an image."""
    return " ".join(text.split()).replace("[", "(").replace("]", ")")


def _plain(text: str) -> str:
    """Write an exponent as people do: 1e-07 becomes 1e-7, 1e+08 becomes 1e8."""
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=lambda name: name is not None and ".html" in name,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(fact=fact, number=number, one_line=_one_line)
