"""Figures in a browser: nothing is cut off at any width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.site_tests.conftest import SITE

pytestmark = pytest.mark.browser

FIGURES = sorted(
    path.relative_to(SITE).as_posix()
    for path in (SITE / "generated").rglob("*.light.svg")
)
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if "ls-plot" in path.read_text("utf-8")
)
COLUMN = 358
"""The width of a page's text in a window of 390 pixels, in pixels."""

# Texts are paths (svg.fonttype), each in its own group. One pixel is for strokes.
OUTSIDE = """() => {
    const whole = document.documentElement.viewBox.baseVal;
    const [right, bottom] = [whole.x + whole.width, whole.y + whole.height];
    return [...document.querySelectorAll('g[id^="text_"]')].filter(text => {
        const map = document.documentElement.getCTM().inverse()
            .multiply(text.getCTM()), box = text.getBBox();
        const corners = [[box.x, box.y], [box.x + box.width, box.y + box.height]]
            .map(([x, y]) => new DOMPoint(x, y).matrixTransform(map));
        return corners.some(at => at.x < whole.x - 1 || at.x > right + 1
            || at.y < whole.y - 1 || at.y > bottom + 1);
    }).map(text => text.id);
}"""

SHOWN = """async () => {
    const shown = [...document.querySelectorAll(".ls-plot img")]
        .filter(image => image.offsetParent);
    for (const image of shown) {
        image.loading = "eager";
        await image.decode();
    }
    return shown.map(image => ({
        file: image.currentSrc.split("/").pop(), width: image.naturalWidth,
        left: image.getBoundingClientRect().left,
        right: image.getBoundingClientRect().right,
        cut: image.closest(".ls-plot").scrollWidth
            > image.closest(".ls-plot").clientWidth,
    }));
}"""


@pytest.fixture(scope="module")
def window(browser: Any) -> Any:
    """One window for all figures."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("figure", FIGURES or [""])
def test_no_text_of_a_figure_lies_outside_of_it(
    figure: str, window: Any, address: str
) -> None:
    if not figure:
        pytest.skip("no result has been published yet, so there is no figure")
    window.goto(address + figure)
    assert window.locator('g[id^="text_"]').count() > 2
    assert window.evaluate(OUTSIDE) == []


def test_a_text_outside_of_a_figure_would_be_found(window: Any, tmp_path: Path) -> None:
    path = tmp_path / "wide.svg"
    group = '<g id="text_{}" transform="translate({} 5)"><path d="M 0 0 L 20 3"/></g>'
    groups = "".join(group.format(at, at) for at in (50, 90))
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 10" width="300">'
    path.write_text(f"{head}{groups}</svg>", "utf-8")
    window.goto(path.as_uri())
    assert window.evaluate(OUTSIDE) == ["text_90"]


def figures_of(window: Any, address: str, width: int) -> list[dict[str, Any]]:
    """Return the visible figures of a page in a window of this width."""
    window.set_viewport_size({"width": width, "height": 900})
    window.goto(address)
    return list(window.evaluate(SHOWN))


@pytest.mark.parametrize("page", PAGES or [""])
def test_a_phone_gets_a_narrow_figure_that_fits(
    page: str, window: Any, address: str
) -> None:
    if not page:
        pytest.skip("no result has been published yet, so there is no figure")
    narrow = figures_of(window, address + page, 390)
    wide = figures_of(window, address + page, 1280)
    assert narrow and len(narrow) == len(wide)
    for small, large in zip(narrow, wide, strict=True):
        assert small["file"].endswith(".narrow.light.svg")
        assert small["file"].replace(".narrow", "") == large["file"].split("#")[0]
        assert small["width"] <= COLUMN
        assert small["left"] >= 0 and small["right"] <= 390
        assert not small["cut"]


def test_a_figure_that_does_not_fit_would_be_found(window: Any, site: Path) -> None:
    image = '<img src="assets/logo.svg" style="width: 500px">'
    frame = f'<div class="ls-plot" style="width: 350px; overflow: auto">{image}</div>'
    window.goto((site / "index.html").as_uri())
    window.evaluate("html => { document.body.innerHTML = html; }", frame)
    (shown,) = window.evaluate(SHOWN)
    assert shown["cut"] and shown["right"] > 390
