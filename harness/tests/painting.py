"""Painting the figures of a finding without files, which take most of the time."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.text import Text

from harness.figures.plot import Canvas, canvas, drawings_of
from harness.figures.style import RC
from harness.judgement.finding import Finding


def paint(finding: Finding) -> set[str]:
    """Put every figure on a canvas; return their names.

    No title or legend may lie outside.
    """
    drawings = list(drawings_of(finding))
    for drawing in drawings:
        with mpl.rc_context(RC):
            painted = canvas(drawing)
            painted.draw_without_rendering()
            for text in titles(painted):
                box = text.get_window_extent()
                inside = box.x0 >= 0 and box.x1 <= painted.bbox.x1
                assert inside and box.y1 <= painted.bbox.y1, text.get_text()
    return {drawing.name for drawing in drawings}


def titles(painted: Canvas) -> list[Text]:
    """Return what stands above and below panels: titles and the legend's texts."""
    legends = [text for legend in painted.legends for text in legend.get_texts()]
    above = [axes._left_title for axes in painted.axes]  # no accessor for the artist
    shown = [text for text in [*above, *legends] if text.get_text()]
    return [*shown, *painted.texts]
