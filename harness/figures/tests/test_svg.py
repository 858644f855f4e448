"""Small SVGs look as those that matplotlib wrote: the same paths at the same places."""

from __future__ import annotations

import re
from io import StringIO

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from harness.figures.style import LIGHT
from harness.figures.svg import compact

CLOSED = """<svg><path d="M 1.005 2
L 3.5 4.25
Q 5 6 7.123456 8
C 0 0 -0.5 -1 2 3
z
M 10 10
M 20 20
L 21 19
"/></svg>"""


def points(path: str) -> list[tuple[str, float, float]]:
    """Return the commands of a relative path with the absolute ends of each step."""
    x = y = 0.0
    start, found = (0.0, 0.0), []
    takes = {"m": 2, "l": 2, "q": 4, "c": 6}
    for name, rest in re.findall(r"([mlqcz])([^mlqcz]*)", path):
        if name == "z":
            x, y = start
            continue
        numbers = [float(n) for n in re.findall(r"-?(?:\d*\.\d+|\d+)", rest)]
        for at in range(0, len(numbers), takes[name]):
            dx, dy = numbers[at + takes[name] - 2 : at + takes[name]]
            x, y = x + dx, y + dy
            start = (x, y) if name == "m" else start
            found.append((name, x, y))
    return found


def test_a_path_goes_through_the_same_points() -> None:
    (path,) = re.findall(r' d="([^"]*)"', compact(CLOSED))
    expected = [
        ("m", 1.005, 2),
        ("l", 3.5, 4.25),
        ("q", 7.123456, 8),
        ("c", 2, 3),
        ("m", 10, 10),
        ("m", 20, 20),
        ("l", 21, 19),
    ]
    for (name, x, y), (expected_name, *end) in zip(points(path), expected, strict=True):
        assert name == expected_name
        # Half of a hundredth of a point is lost where a coordinate is rounded.
        assert [x, y] == pytest.approx(end, abs=0.0051)


def test_errors_of_rounding_do_not_add_up() -> None:
    steps = "\n".join(f"L {k * 1.004:.6f} 0" for k in range(1, 1001))
    (path,) = re.findall(r' d="([^"]*)"', compact(f'<path d="M 0 0\n{steps}"/>'))
    assert points(path)[-1][1] == pytest.approx(1004, abs=0.0051)


@pytest.fixture(scope="module")
def drawn() -> tuple[str, str]:
    """A figure as matplotlib writes it, and made small."""
    import matplotlib as mpl

    with mpl.rc_context(LIGHT.rc):
        figure = Figure()
        panel = figure.subplots()
        panel.plot(range(100), [k * k for k in range(100)], "o")
        panel.set_title("squares of $2^{10}$ numbers")
        content = StringIO()
        FigureCanvasSVG(figure).print_svg(content)
    return content.getvalue(), compact(content.getvalue())


def test_a_figure_has_all_its_elements_and_half_its_size(
    drawn: tuple[str, str],
) -> None:
    whole, small = drawn
    assert len(small) < 0.6 * len(whole)
    for tag in ("<path", "<use", '<g id="text_'):
        assert small.count(tag) == whole.count(tag)
    # A group without attributes, or with a name that is no text's, does nothing.
    bare = re.findall(r'<g(?: id="(?!text_)[^"]*")?>', whole)
    assert small.count("<g") == whole.count("<g") - len(bare) > 0
    assert small.count("</g>") == whole.count("</g>") - len(bare)


def test_whatever_is_referred_to_is_there_once(drawn: tuple[str, str]) -> None:
    _, small = drawn
    names = re.findall(r'\bid="([^"]*)"', small)
    used = re.findall(r'(?:href="|url\()#([^")]*)', small)
    assert len(names) == len(set(names))
    assert used and set(used) <= set(names)
    classes = set(re.findall(r'class="(\w+)"', small))
    assert classes and all(f".{name}{{" in small for name in classes)


def test_groups_without_attributes_go_and_what_is_in_them_stays() -> None:
    nested = (
        '<svg>\n<g>\n<g transform="a">\n<g>\n<path/>\n</g>\n<g id="text_1" />\n'
        "</g>\n<glyph/>\n</g>\n</svg>"
    )
    assert compact(nested) == (
        '<svg>\n<g transform="a">\n<path/>\n<g id="text_1" />\n</g>\n<glyph/>\n</svg>'
    )
