"""The style of every plot, with a colour per method and per backend.

The colours are those of Okabe and Ito, which people with colour-blindness can
distinguish. Methods also differ in line style, and backends in marker. Figures are
painted on a light page; :func:`in_dark` exchanges the colours for a dark one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.registry import BACKENDS

PANEL = 4.2
"""The width of a figure with one panel, in inches: 420 pixels."""

THIN = 0.8
"""The width of a reference line, in points."""


@dataclass(frozen=True)
class Theme:
    """The colours of a figure.

    Attributes:
        methods: a colour for each method. ``none`` is the bare optimizer, ``mean`` is
            the bare optimizer with another loss, ``default`` and ``strict`` are the two
            modes of our wrapper.
        backends: a colour for each backend, and for the reference.
    """

    ink: str
    faint: str
    methods: Mapping[str, str]
    backends: Mapping[str, str]

    def hue(self, name: str) -> str:
        """Return the colour of a method, or ``ink`` or ``faint``."""
        return {**self.methods, "ink": self.ink, "faint": self.faint}[name]


LIGHT = Theme(
    ink="#22262e",
    faint="#9aa1ad",
    methods={
        "none": "#d55e00",
        "mean": "#6b7280",
        "default": "#0072b2",
        "strict": "#7a4d8f",
    },
    backends={name: backend.colors[0] for name, backend in BACKENDS.items()},
)
DARK_FOR = {
    "#22262e": "#e4e7ec",
    "#9aa1ad": "#6f7784",
    "#d55e00": "#ff9c54",
    "#6b7280": "#a8b0bd",
    "#0072b2": "#63b8f0",
    "#7a4d8f": "#cfa0e0",
    **dict(backend.colors for backend in BACKENDS.values()),
}
"""Colour on a light page -> the same on a dark one."""


def in_dark(svg: str) -> str:
    """Return a figure for a dark page. Colours of no theme are unchanged."""
    return re.sub("#[0-9a-f]{6}", lambda hit: DARK_FOR.get(hit[0], hit[0]), svg)


INKS = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
RC: dict[Any, Any] = {
    **dict.fromkeys(INKS, LIGHT.ink),
    "axes.edgecolor": LIGHT.faint,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "figure.titlesize": 11,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 9,
    "grid.alpha": 0.35,
    "grid.color": LIGHT.faint,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "lockstep",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
"""Settings for ``matplotlib.rc_context``; equal data gives equal bytes."""


def marker(backend: str, backends: Sequence[str], colour: str) -> dict[str, Any]:
    """Return the marker settings of a backend; only the first backend is filled."""
    return {
        "marker": symbol(backend),
        "ms": 4.5,
        "color": colour,
        "mfc": colour if backend == backends[0] else "none",
        "lw": 0,
    }


def symbol(backend: str) -> str:
    """Return the marker of a backend, whose name may include a device."""
    return BACKENDS[backend.split(" ")[0]].marker
