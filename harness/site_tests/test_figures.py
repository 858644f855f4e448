"""Figures in a browser: nothing is cut off at any width."""

from __future__ import annotations

from typing import Any

import pytest

from harness.site_tests.conftest import SITE

pytestmark = pytest.mark.browser

FIGURES = sorted(
    path.relative_to(SITE).as_posix()
    for path in (SITE / "generated").rglob("*.light.svg")
)
# Each text is in its own group. One pixel is for strokes.
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
