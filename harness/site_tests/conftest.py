"""Fixtures: the built site on a small server, and an installed browser."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

SITE = Path(__file__).resolve().parents[2] / "site"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
INDEX = "search/search_index.json"
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "msedge",
)
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)


SAMPLES = {"index.html", "multitask.html", "parity.html", "reference/pytorch.html"}
"""Hand-written pages on which the default tests run all checks."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark checks of a page as slow that similar pages have, too.

    Of each folder of generated pages, the default tests check the index and the longest
    page. Hand-written pages lack only the slowest check, for accessibility.
    """
    page = getattr(item, "callspec", None) and item.callspec.params.get("visit")
    if not page or page in samples():
        return
    if page.startswith("generated/") or "nothing_keeps_people" in item.name:
        item.add_marker(pytest.mark.slow)


@cache
def samples() -> frozenset[str]:
    """Return the pages on which the default tests run all checks."""
    pages = sorted((SITE / "generated").rglob("*.html"), key=lambda p: p.stat().st_size)
    longest = {page.parent: page for page in pages}.values()
    chosen = [*longest, *(page for page in pages if page.name == "index.html")]
    return frozenset(page.relative_to(SITE).as_posix() for page in chosen) | SAMPLES


def find_browser() -> str | None:
    """Return the path of an installed Chromium, Chrome or Edge, or None."""
    on_path = [path for name in NAMES if (path := shutil.which(name))]
    usual = [place for place in PLACES if Path(place).is_file()]
    return next(iter([*on_path, *usual]), None)


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built site."""
    if not (SITE / "index.html").is_file():
        pytest.fail("there is no built site; run nox -s site first", pytrace=False)
    return SITE


class Handler(SimpleHTTPRequestHandler):
    """Serves files without a log line for each; a browser keeps what it has once got.

    Args:
        index: a search index, served instead of the built one of a megabyte.
    """

    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any, index: str = "", **named: Any) -> None:
        self.index = index.encode()
        super().__init__(*args, **named)

    def do_GET(self) -> None:
        """Send a file, or the given index."""
        if not (self.index and urlsplit(self.path).path == f"/{INDEX}"):
            super().do_GET()
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.index)))
        self.end_headers()
        self.wfile.write(self.index)

    def end_headers(self) -> None:
        """Let the browser use a file again without asking whether it has changed."""
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def served(folder: Path, index: str = "") -> Iterator[str]:
    """Serve a built site on a free local port; yield its address.

    Args:
        index: a search index, served instead of the built one.
    """
    handler = partial(Handler, directory=str(folder), index=index)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


LOADED = """async () => {
    const got = performance.getEntriesByType("resource").map(entry => entry.name);
    if (!got.some(name => name.endsWith("/search_index.json"))) return false;
    document.body.getBoundingClientRect();  // The layout asks for the fonts.
    await document.fonts.ready;
    return document.readyState === "complete"
        && [...document.images].every(i => i.loading === "lazy" || i.complete);
}"""
"""A script that returns whether a page has everything that it asks for by itself.

The search index is what each page asks for last, after its scripts have run.
"""


def load(page: Any, address: str) -> None:
    """Open an address and wait until the page has everything but lazy images."""
    page.goto(address, wait_until="load")
    page.wait_for_function(LOADED)


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Serve the site; yield its address."""
    with served(site) as url:
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Start the browser; skip the test if there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium, Chrome or Edge was found on this machine")
    # Browsers do not start with their sandbox as root, as in most containers.
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    arguments = ["--no-sandbox"] if as_root else []
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A window that is closed at the end of the test."""
    context = browser.new_context(viewport=WIDE, color_scheme="light")
    yield context.new_page()
    context.close()
