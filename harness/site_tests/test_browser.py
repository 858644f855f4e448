"""Tests of the built site in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.site_tests.conftest import PAGES, WIDE, load

pytestmark = pytest.mark.browser

WHOLE = 30e6
"""The most bytes of all published files."""
LONG = "table[data-filter]"
"""A table of numbers that has a filter."""


def test_the_whole_site_is_light(site: Path) -> None:
    if (site.parent / "results" / "local").is_dir():
        pytest.skip("the site also shows results that were measured in this checkout")
    files = [path for path in site.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= WHOLE


def visible_plots(page: Any) -> list[str]:
    """Return the files of the visible plots, without ``light`` or ``dark``."""
    script = """() => [...document.querySelectorAll(".ls-plot img")]
        .filter(i => i.offsetParent).map(i => i.src.split("/").pop())"""
    return list(page.evaluate(script))


def plotted(site: Path) -> str:
    """Return the address of a page with plots."""
    pages = [p for p in PAGES if "ls-plot" in (site / p).read_text("utf-8")]
    if not pages:
        pytest.skip("no result has been published yet, so there is no plot")
    return pages[0]


def test_the_toggle_swaps_the_plots(page: Any, address: str, site: Path) -> None:
    page.goto(address + plotted(site))
    light = visible_plots(page)
    assert light
    assert all(name.endswith(".light.svg#only-light") for name in light)
    page.get_by_title("Switch to dark").click()
    page.wait_for_selector("body[data-md-color-scheme=slate]")
    dark = [name.replace("light", "dark") for name in light]
    assert visible_plots(page) == dark


def test_the_system_preference_decides_first(browser: Any, address: str) -> None:
    schemes = {}
    for preferred in "light", "dark":
        context = browser.new_context(viewport=WIDE, color_scheme=preferred)
        page = context.new_page()
        load(page, address)
        body = page.locator("body")
        schemes[preferred] = body.get_attribute("data-md-color-scheme")
        context.close()
    assert schemes == {"light": "default", "dark": "slate"}


@pytest.fixture
def cases(page: Any, address: str, site: Path) -> Any:
    """The first long table of a benchmark, on its opened page."""
    name = "generated/benchmarks/multitask_overhead.html"
    if "data-filter" not in (site / name).read_text("utf-8"):
        pytest.skip("the benchmark has no published records, so there is no table")
    page.goto(address + name)
    return page.locator(LONG).first


def keys_of(table: Any, index: int) -> list[str]:
    """Return the sort keys of a column of a table, from top to bottom."""
    script = "(t, k) => [...t.tBodies[0].rows].map(r => r.cells[k].dataset.sort)"
    return list(table.evaluate(script, index))


@pytest.mark.parametrize(
    ("clicks", "order", "expected"),
    [
        (1, "ascending", ["-50", "-2", "9", "10", "inf"]),
        (2, "descending", ["inf", "10", "9", "-2", "-50"]),
    ],
)
def test_a_table_sorts_by_numbers_with_the_missing_last(
    cases: Any, clicks: int, order: str, expected: list[str]
) -> None:
    head = cases.locator("th.num").last
    index = head.evaluate("h => h.cellIndex")
    values = ["10", "", "9", "inf", "-50", "-2"]
    cases.evaluate(
        """(t, [k, keys]) => [...t.tBodies[0].rows].forEach(
            (row, i) => { row.cells[k].dataset.sort = keys[i] ?? ""; })""",
        [index, values],
    )
    for _ in range(clicks):
        head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == order
    keys = keys_of(cases, index)
    assert keys[: len(expected)] == expected
    assert set(keys[len(expected) :]) == {""}


def test_a_table_filters_and_says_how_much_is_left(page: Any, cases: Any) -> None:
    bar = page.locator(".ls-filter").first
    field, count = bar.locator("input"), bar.locator("output")
    rows = cases.locator("tbody tr")
    total = rows.count()
    assert count.inner_text() == f"{total} of {total} rows"
    field.fill("keras3 twice")
    left = rows.filter(visible=True)
    assert 0 < left.count() < total
    assert count.inner_text() == f"{left.count()} of {total} rows"
    assert all("twice" in text for text in left.all_inner_texts())
    field.fill("no such row")
    assert left.count() == 0
