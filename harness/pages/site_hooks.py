"""Hooks of MkDocs: pages of the navigation, and files of the theme.

In ``nav`` of ``mkdocs.yml``, a folder of ``docs/`` stands for its pages. So new
experiments, benchmarks and wrappers need no entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.pages import summaries

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def on_config(config: Any) -> Any:
    """Replace folders by their pages after MkDocs has read its settings."""
    config["nav"] = with_pages(config["nav"])
    return config


def with_pages(entry: Any) -> Any:
    """Return an entry of ``nav``, with folders replaced by their pages."""
    if isinstance(entry, dict):
        return {title: with_pages(pages) for title, pages in entry.items()}
    if not isinstance(entry, list):
        return entry
    nav: list[Any] = []
    for each in entry:
        if each == summaries.FOLDER:
            nav += summaries.navigation()
        elif isinstance(each, str) and each.endswith("/"):
            pages = sorted((DOCS / each).glob("*.md"))
            nav += [f"{each}{page.name}" for page in pages if page.stem != "index"]
        else:
            nav.append(with_pages(each))
    return nav


def on_files(files: Any, **_: object) -> Any:
    """Leave out what no page loads: source maps, and search in other languages."""
    for file in list(files):
        if file.src_uri.endswith(".map") or "/lunr/" in file.src_uri:
            files.remove(file)
    return files
