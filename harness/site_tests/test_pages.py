"""Each page of the built site in a real browser, opened once for all checks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.site_tests.conftest import INDEX, PAGES, PHONE, WIDE, load, served

pytestmark = pytest.mark.browser

FIRST_LOAD = 1.5e6
"""The most bytes of the first load of a page."""
COLUMN = 358
"""The width of a page's text in a window of 390 pixels, in pixels."""


@dataclass
class Visit:
    """One opened page and the problems since then.

    Attributes:
        first: the requests until the page was loaded.
    """

    page: Any
    address: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class Tab:
    """One tab for all pages, which keeps the files that they share.

    Attributes:
        visit: the page that is open, and what happens there.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.visit = Visit(page, "")
        page.on("request", lambda request: self.visit.requests.append(request.url))
        page.on("requestfailed", self._miss)
        page.on("response", self._look_at)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.visit.console.append(str(error)))

    def open(self, address: str, name: str) -> Visit:
        """Open a page of the site and wait until everything is loaded."""
        self.page.set_viewport_size(WIDE)
        self.visit = Visit(self.page, address)
        load(self.page, address + name)
        self.visit.first = list(self.visit.requests)
        return self.visit

    def _miss(self, request: Any) -> None:
        # What the page before still asked for ends when the next one is opened.
        if request.failure != "net::ERR_ABORTED":
            self.visit.failed.append(request.url)

    def _look_at(self, response: Any) -> None:
        if response.status >= 400:
            self.visit.failed.append(response.url)

    def _hear(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.visit.console.append(said.text)


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Tab]:
    """The tab of all pages."""
    context = browser.new_context(viewport=WIDE, color_scheme="light")
    yield Tab(context.new_page())
    context.close()


@pytest.fixture(scope="module")
def light_address(site: Path) -> Iterator[str]:
    """Serve the site with only one of the texts of the search index."""
    index = json.loads((site / INDEX).read_text("utf-8"))
    with served(site, json.dumps({**index, "docs": index["docs"][:1]})) as url:
        yield url


@pytest.fixture(scope="module", params=PAGES or ["index.html"])
def visit(request: Any, tab: Tab, address: str, light_address: str) -> Visit:
    """Each page of the site; only the first one gets the full search index."""
    name = request.param
    return tab.open(address if name == "index.html" else light_address, name)


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


SHOWN = """async () => {
    const shown = [...document.querySelectorAll(".ls-plot img")]
        .filter(image => image.offsetParent);
    for (const image of shown) {
        image.loading = "eager";
        await image.decode();
    }
    return shown.map(image => {
        const frame = image.closest(".ls-plot").getBoundingClientRect();
        const size = image.getBoundingClientRect().width;
        return {
            inside: frame.left >= 0 && frame.right <= innerWidth,
            readable: size >= Math.min(image.naturalWidth, frame.width) - 1,
        };
    });
}"""


def test_a_phone_scrolls_a_figure_inside_its_frame(visit: Visit) -> None:
    visit.page.set_viewport_size(PHONE)
    figures = visit.page.evaluate(SHOWN)
    visit.page.set_viewport_size(WIDE)
    assert bool(figures) == bool(visit.page.locator(".ls-plot").count())
    assert all(figure["inside"] and figure["readable"] for figure in figures)


def sent(site: Path, address: str, url: str) -> int:
    """Return the bytes that a server sends if it compresses text, as most do."""
    name = urlsplit(url.removeprefix(address)).path or "index.html"
    content = (site / name).read_bytes()
    return min(len(content), len(gzip.compress(content, 6)))


def test_the_first_load_is_light(visit: Visit, site: Path) -> None:
    address = visit.address
    files = {url.partition("#")[0] for url in visit.first if url.startswith(address)}
    assert sum(sent(site, address, url) for url in files) <= FIRST_LOAD


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
        if (counts.get(shape) > 5) element.remove();
    }
    const look = e => `${e.tagName} ${e.className} ${e.getAttributeNames()}`;
    for (const row of document.querySelectorAll("tbody tr, li"))
        remove(row, [...row.querySelectorAll("*")].map(look).join());
    for (const word of document.querySelectorAll("pre code span:not(:has(*))"))
        remove(word, look(word) + word.closest("div").className);
}"""
"""A script that keeps five of the rows, items and code words with the same classes.

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


# These two are last, so that they notice what the checks above loaded.


def test_the_console_stays_silent(visit: Visit) -> None:
    assert visit.console == []


def test_every_request_stays_here_and_succeeds(
    visit: Visit, address: str, light_address: str
) -> None:
    here = (address, light_address)
    assert visit.requests
    assert [url for url in visit.requests if not url.startswith(here)] == []
    assert visit.failed == []
