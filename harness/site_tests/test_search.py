"""The search works from files and servers, at every width, for words, not numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.interface import EXPORTS

pytestmark = pytest.mark.browser

SIZES = ({"width": 1280, "height": 900}, {"width": 390, "height": 844})
TABLE = re.compile(
    '<table class="ls-sortable"[^>]*>(.*?)</thead>(.*?)</table>', re.DOTALL
)
"""The caption and the headings of a generated table, and its rows."""

NUMBERS = re.compile(r'<td class="num"[^>]*>[^<]*</td>\s*<td class="num"')
RESULT = ".md-search-result__link"


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Any]:
    """One window for all searches."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def results_of(page: Any, query: str) -> Any:
    """Type a query; return the list of results when it is complete."""
    field = page.get_by_role("textbox", name="Search")
    results = page.locator(RESULT)
    for text in ("", query):  # First clear the results of the previous query.
        field.fill(text)
        field.press("End")  # The search updates on key events.
        if not text:
            results.first.wait_for(state="detached")
    words = re.compile(re.escape(query.split()[0]), re.I)
    results.filter(has_text=words).first.wait_for(state="attached", timeout=5000)
    return results


@pytest.mark.parametrize("name", EXPORTS)
def test_every_name_is_found_from_a_file(name: str, window: Any, site: Path) -> None:
    if not window.url.startswith("file:"):
        window.goto((site / "index.html").as_uri())
        window.get_by_role("textbox", name="Search").click()
    results = results_of(window, name)
    addresses = results.evaluate_all("links => links.map(link => link.href)")
    documented = re.compile(rf"/reference/.*#lockstep\.[\w.]+\.{name}(\?|$)")
    assert [link for link in addresses if documented.search(unmarked(link))]
    first = addresses[0].partition("?")[0].removeprefix(f"{site.as_uri()}/")
    assert name in (site / first).read_text("utf-8")


def unmarked(address: str) -> str:
    """Return an address without the suffix with which Material marks query words."""
    return re.sub(r"\?h=[^#]*", "", address)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size["width"]))
@pytest.mark.parametrize("query", ["multitask", "loss scaling", "staleness"])
def test_words_are_found_at_every_width(
    query: str, size: dict[str, int], browser: Any, address: str
) -> None:
    page = browser.new_context(viewport=size).new_page()
    page.goto(address)
    way = ".md-header__button[for=__search], .md-search__input"
    page.locator(way).filter(visible=True).first.click()
    results_of(page, query).first.click()
    page.wait_for_url(re.compile(r"\.html"))
    assert query.split()[0] in page.locator("article").inner_text().lower()
    page.context.close()


def test_no_table_of_numbers_is_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    texts: dict[str, str] = {}
    for entry in index["docs"]:
        page = entry["location"].partition("#")[0]
        texts[page] = texts.get(page, "") + letters(entry["text"])
    heads = {
        (path.relative_to(site).as_posix(), letters(head))
        for path in site.rglob("*.html")
        for head, body in TABLE.findall(path.read_text("utf-8"))
        if NUMBERS.search(body)
    }
    assert len(heads) > 20
    assert [at for at in heads if at[1] in texts.get(at[0], "")] == []


def letters(text: str) -> str:
    """Return a text without tags and spaces."""
    return re.sub(r"<[^>]*>|\s", "", text)
