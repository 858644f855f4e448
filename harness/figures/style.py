"""The style of every plot: two themes, with a colour per method and per backend.

The colours are those of Okabe and Ito, which people with colour-blindness can
distinguish. They are lighter in the dark theme. Methods also differ in line style, and
backends in marker.
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
    """Colours of one theme.

    Attributes:
        methods: a colour for each method. ``none`` is the bare optimizer, ``mean`` is
            the bare optimizer with another loss, ``default`` and ``strict`` are the two
            modes of our wrapper.
        backends: a colour for each backend, and for the reference.
    """

    name: str
    ink: str
    faint: str
    methods: Mapping[str, str]
    backends: Mapping[str, str]

    def hue(self, name: str) -> str:
        """Return the colour of a method, or ``ink`` or ``faint``."""
        return {**self.methods, "ink": self.ink, "faint": self.faint}[name]

    @property
    def colors(self) -> list[str]:
        """All colours, in the same order in every theme."""
        return [self.ink, self.faint, *self.methods.values(), *self.backends.values()]

    @property
    def rc(self) -> dict[Any, Any]:
        """Settings for ``matplotlib.rc_context``; equal data gives equal bytes."""
        inks = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
        return {
            **dict.fromkeys(inks, self.ink),
            "axes.edgecolor": self.faint,
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
            "grid.color": self.faint,
            "grid.linewidth": 0.6,
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "savefig.facecolor": "none",
            "svg.fonttype": "none",
            "svg.hashsalt": "lockstep",
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
        }


LIGHT = Theme(
    "light",
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
DARK = Theme(
    "dark",
    ink="#e4e7ec",
    faint="#6f7784",
    methods={
        "none": "#ff9c54",
        "mean": "#a8b0bd",
        "default": "#63b8f0",
        "strict": "#cfa0e0",
    },
    backends={name: backend.colors[1] for name, backend in BACKENDS.items()},
)


COLOR = re.compile("#[0-9a-f]{6}")
DARK_FOR = dict(zip(LIGHT.colors, DARK.colors, strict=True))
"""Colour of the light theme -> the same in the dark theme."""


def in_dark(svg: str) -> str:
    """Return an SVG in the light theme with the colours of the dark theme.

    The themes differ in nothing else. Colours of neither theme are unchanged.
    """
    return COLOR.sub(lambda found: DARK_FOR.get(found[0], found[0]), svg)


def symbol(backend: str) -> str:
    """Return the marker of a backend, whose name may include a device."""
    return BACKENDS[backend.split(" ")[0]].marker


def marker(backend: str, backends: Sequence[str], colour: str) -> dict[str, Any]:
    """Return the marker settings of a backend; only the first backend is filled."""
    filled = colour if backend == backends[0] else "none"
    return {
        "marker": symbol(backend),
        "ms": 4.5,
        "color": colour,
        "mfc": filled,
        "lw": 0,
    }
