"""Tests of the built site in a real browser."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.site_tests.conftest import SITE, load

pytestmark = pytest.mark.browser

PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
FIRST_LOAD, WHOLE = 1.5e6, 30e6
"""The most bytes of the first load of a page, and of all published files."""
OWN = "own"
"""Folder of figures and tables of results that were measured in this checkout."""

CASES = "table[data-filter]"


@dataclass
class Visit:
    """One opened page and the problems during its load."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def open_page(context: Any, address: str, index: str = "") -> Visit:
    """Open an address in a new tab and wait until everything is loaded.

    Args:
        index: a short search index, served instead of the one of a megabyte.
    """
    page = context.new_page()
    visit = Visit(page)
    if index:
        page.route("**/search_index.json", lambda route: route.fulfill(body=index))
    page.on("request", lambda request: visit.requests.append(request.url))
    page.on("requestfailed", lambda request: visit.failed.append(request.url))
    page.on(
        "response",
        lambda got: visit.failed.append(got.url) if got.status >= 400 else None,
    )
    page.on(
        "console",
        lambda said: (
            visit.console.append(said.text)
            if said.type in ("error", "warning")
            else None
        ),
    )
    page.on("pageerror", lambda error: visit.console.append(str(error)))
    load(page, address)
    visit.first = list(visit.requests)
    return visit


@pytest.fixture(scope="module")
def short_index(site: Path) -> str:
    """The search index with only one of its texts."""
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    return json.dumps({**index, "docs": index["docs"][:1]})


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Any]:
    """The window of all pages, which keeps the files that they share."""
    context = browser.new_context(viewport=WIDE, color_scheme="light")
    yield context
    context.close()


@pytest.fixture(scope="module", params=PAGES or ["index.html"])
def visit(request: Any, window: Any, address: str, short_index: str) -> Iterator[Visit]:
    """Each page of the site; only the first one gets the full search index."""
    index = "" if request.param == "index.html" else short_index
    opened = open_page(window, address + request.param, index)
    yield opened
    opened.page.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A window that is closed at the end of the test."""
    context = browser.new_context(viewport=WIDE, color_scheme="light")
    yield context.new_page()
    context.close()


def test_the_console_stays_silent(visit: Visit) -> None:
    assert visit.console == []


def test_every_request_stays_here_and_succeeds(visit: Visit, address: str) -> None:
    assert visit.requests
    assert [url for url in visit.requests if not url.startswith(address)] == []
    assert visit.failed == []


def test_every_image_loads(visit: Visit) -> None:
    # Load the lazy images, which wait until they are visible.
    decode = """() => Promise.all([...document.images].map(image => {
        image.loading = "eager";
        return image.decode().then(() => null, () => image.src);
    }))"""
    assert visit.page.evaluate("document.images.length") > 0
    assert [bad for bad in visit.page.evaluate(decode) if bad] == []


def test_every_formula_is_rendered(visit: Visit) -> None:
    marked = visit.page.locator(".arithmatex").count()
    assert (
        visit.page.locator(".arithmatex > :is(.katex, .katex-display)").count()
        == marked
    )
    assert visit.page.locator(".katex-error").count() == 0


CUT_OFF = """() => [...document.querySelectorAll("article :is(h1, h2, h3, summary, p)")]
    .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1
        && getComputedStyle(e).display !== "inline")
    .filter(e => e.clientWidth > 0 && !e.querySelector("img"))
    .map(e => e.textContent.slice(0, 80))"""


def test_a_phone_need_not_scroll_sideways_and_no_title_is_cut_off(
    visit: Visit,
) -> None:
    look = CUT_OFF if "/generated/" in visit.page.url else "[]"
    cut_off = visit.page.evaluate(look)
    visit.page.set_viewport_size(PHONE)
    width = visit.page.evaluate("document.documentElement.scrollWidth")
    cut_off += visit.page.evaluate(look)
    visit.page.set_viewport_size(WIDE)
    assert width == PHONE["width"]
    assert cut_off == []


def sent(site: Path, address: str, url: str) -> int:
    """Return the bytes that a server sends if it compresses text, as most do."""
    name = urlsplit(url.removeprefix(address)).path or "index.html"
    content = (site / name).read_bytes()
    return min(len(content), len(gzip.compress(content, 6)))


def test_the_first_load_is_light(visit: Visit, address: str, site: Path) -> None:
    files = {url.partition("#")[0] for url in visit.first if url.startswith(address)}
    assert sum(sent(site, address, url) for url in files) <= FIRST_LOAD


def test_the_whole_site_is_light(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.is_file()]
    # Figures and tables of results that were measured here are not published.
    published = [path for path in files if OWN not in path.relative_to(site).parts]
    assert sum(path.stat().st_size for path in published) <= WHOLE


STILL = "*, ::before, ::after { transition: none !important; }"
"""A style that switches to the colors of the other scheme without a transition."""


def serious(page: Any, rules: dict[str, Any]) -> list[str]:
    """Return the accessibility problems that axe finds on a page."""
    reason = "axe-core is installed with the site only"
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=reason)
    options = {"resultTypes": ["violations"], **rules}
    violations = axe.Axe().run(page, options=options).response["violations"]
    return [
        f"{violation['id']} in {node['html'][:120]}: {node['failureSummary']}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


ALIKE = """() => {
    const counts = new Map();
    function remove(element, shape) {
        counts.set(shape, 1 + (counts.get(shape) || 0));
        if (counts.get(shape) > 20) element.remove();
    }
    const look = e => `${e.tagName} ${e.className} ${e.getAttributeNames()}`;
    for (const row of document.querySelectorAll("tbody tr"))
        remove(row, [...row.querySelectorAll("*")].map(look).join());
    for (const word of document.querySelectorAll("pre code span:not(:has(*))"))
        remove(word, look(word) + word.closest("div").className);
}"""
"""A script that keeps 20 of the table rows and code words with the same classes.

On the page of all cases, a check of all of them takes 25 seconds.
"""


def test_nothing_keeps_people_from_using_it(visit: Visit) -> None:
    visit.page.evaluate(ALIKE)
    visit.page.add_style_tag(content=STILL)
    assert serious(visit.page, {}) == []
    # The dark scheme has the same elements, so only their colors can differ.
    switch = "scheme => { document.body.dataset.mdColorScheme = scheme; }"
    visit.page.evaluate(switch, "slate")
    dark = serious(visit.page, {"runOnly": ["color-contrast"]})
    visit.page.evaluate(switch, "default")
    assert dark == []


def test_what_keeps_people_from_using_it_would_be_found(page: Any) -> None:
    page.set_content('<html lang="en"><title>x</title><main><button></button></main>')
    assert [text.split()[0] for text in serious(page, {})] == ["button-name"]


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
        body = open_page(context, address).page.locator("body")
        schemes[preferred] = body.get_attribute("data-md-color-scheme")
        context.close()
    assert schemes == {"light": "default", "dark": "slate"}


@pytest.fixture
def cases(page: Any, address: str) -> Any:
    """The table of all parity cases on its opened page."""
    page.goto(address + "parity.html")
    if not page.locator(CASES).count():
        pytest.skip("no parity report has been published yet, so there is no table")
    return page.locator(CASES)


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
    field, count = page.locator(".ls-filter input"), page.locator(".ls-filter output")
    rows = cases.locator("tbody tr")
    total = rows.count()
    assert count.inner_text() == f"{total} of {total} rows"
    field.fill("multitask sparse")
    left = rows.filter(visible=True)
    assert 0 < left.count() < total
    assert count.inner_text() == f"{left.count()} of {total} rows"
    assert all("sparse" in text for text in left.all_inner_texts())
    field.fill("no such case")
    assert left.count() == 0
