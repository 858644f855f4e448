"""All internal links, files and anchors of the built site exist; needs no browser."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

TEXT = {".html", ".css", ".js", ".json", ".svg", ".csv", ".xml", ".txt", ".py"}
LOADED = {"script", "img", "link", "iframe", "source", "object", "use"}


class Page(HTMLParser):
    """Collects the links, the loaded files and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the addresses and the id of one element."""
        attributes = {name: value for name, value in attrs if value}
        self.anchors |= {attributes[key] for key in ("id", "name") if key in attributes}
        target = (
            attributes.get("href") or attributes.get("src") or attributes.get("data")
        )
        if target and (tag, attributes.get("rel")) != ("link", "canonical"):
            (self.loaded if tag in LOADED else self.links).append(target)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """Address below the root -> page, for every page of the site."""
    return {
        path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")
    }


def broken(site: Path, pages: dict[str, Page]) -> list[str]:
    """Return every broken address, with the page that contains it."""
    targets = []
    for name, page in pages.items():
        for target in page.links + page.loaded:
            address, anchor = urldefrag(urljoin(f"/{name}", target))
            if urlsplit(address).scheme:
                continue
            file = unquote(urlsplit(address).path).lstrip("/") or "index.html"
            file += "index.html" if file.endswith("/") else ""
            plot = anchor in ("only-light", "only-dark")
            known = pages[file].anchors if file in pages and not plot else {anchor}
            if not (site / file).is_file() or (anchor and unquote(anchor) not in known):
                targets.append(f"{name}: {target}")
    return targets


def test_every_internal_link_and_anchor_holds(
    site: Path, pages: dict[str, Page]
) -> None:
    assert sum(len(page.links) for page in pages.values()) > len(pages)
    assert broken(site, pages) == []


def test_no_reference_is_left_unresolved(site: Path) -> None:
    texts = {path.name: path.read_text("utf-8") for path in site.rglob("*.html")}
    marks = ("</code>][", "<autoref")
    assert [name for name, text in texts.items() if any(m in text for m in marks)] == []


def test_every_snippet_is_included(site: Path) -> None:
    # Highlighting and formatters may split the mark of a snippet.
    mark = re.compile(r"--\s*8\s*<\s*--")
    texts = {
        path.name: html.unescape(re.sub(r"<[^>]*>", "", path.read_text("utf-8")))
        for path in site.rglob("*.html")
    }
    assert [name for name, text in texts.items() if mark.search(text)] == []


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, Page]) -> None:
    loaded = {target for page in pages.values() for target in page.loaded}
    assert loaded
    assert sorted(target for target in loaded if urlsplit(target).netloc) == []


def test_nothing_names_the_machine_that_built_it(site: Path) -> None:
    checkout = re.compile(re.escape(site.parent.as_posix()) + r"(?=[/\"'\s<]|$)")
    files = [path for path in site.rglob("*") if path.suffix in TEXT]
    texts = {path.name: path.read_text("utf-8", "replace") for path in files}
    assert [name for name, text in texts.items() if checkout.search(text)] == []
