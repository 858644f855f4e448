"""Charts in a real browser from a file: pointer, keys, toggles and log axis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.site_tests.conftest import SITE

pytestmark = pytest.mark.browser

PAGES = sorted(
    page.relative_to(SITE).as_posix()
    for page in (SITE / "generated").rglob("*.html")
    if 'class="ls-chart"' in page.read_text("utf-8")
)
LINES = ".ls-chart > svg .line"
POINTS = (
    "() => document.querySelector('.ls-chart > svg polyline').getAttribute('points')"
)


@pytest.fixture(params=PAGES or [""])
def page(request: Any, browser: Any, site: Path) -> Iterator[Any]:
    """A page with a visible chart, opened as a file."""
    if not request.param:
        pytest.skip("no experiment with a chart has been published yet")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto((site / request.param).as_uri())
    page.get_by_role("button", name="Explore the values").first.click()
    page.wait_for_selector(LINES, state="attached")
    yield page
    context.close()


def test_the_chart_takes_the_place_of_its_figure_and_gives_it_back(page: Any) -> None:
    figure = page.locator("figure.ls-plot:has(+ .ls-explore)").first
    figure.wait_for(state="hidden")
    page.get_by_role("button", name="Show the figure").click()
    figure.wait_for(state="visible")
    page.locator(".ls-chart").first.wait_for(state="hidden")


def test_keys_and_pointer_read_values(page: Any) -> None:
    chart = page.locator(".ls-chart > svg").first
    values = page.locator(".ls-chart output").first
    chart.focus()
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        said.append(values.inner_text())
    assert said[0] != said[1] and said[0] == said[2]
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 30, box["y"] + 100)
    assert values.inner_text() not in said
    assert values.locator("li").count() == page.locator(LINES).count()


def test_a_line_can_be_hidden_and_the_axis_made_logarithmic(page: Any) -> None:
    count = page.locator(LINES).count()
    boxes = page.locator(".ls-chart label:has(.ls-swatch) input")
    boxes.last.uncheck()
    assert page.locator(LINES).count() == count - 1
    boxes.last.check()
    before = page.evaluate(POINTS)
    log = page.get_by_role("checkbox", name="logarithmic axis").first
    log.set_checked(not log.is_checked())
    assert page.evaluate(POINTS) != before


@pytest.mark.parametrize("address", PAGES or [""])
def test_without_javascript_there_is_the_figure(
    address: str, browser: Any, site: Path
) -> None:
    if not address:
        pytest.skip("no experiment with a chart has been published yet")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / address).as_uri())
    assert page.locator("figure.ls-plot").first.is_visible()
    assert page.locator(".ls-explore").count() == 0
    assert not page.locator(".ls-chart").first.is_visible()
    context.close()
