"""Hooks of MkDocs: pages of the navigation, and files of the theme.

In ``nav`` of ``mkdocs.yml``, a folder of ``docs/`` is replaced by all of its pages. So
new experiments, benchmarks, API pages and wrappers need no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from harness.pages.reference import HUBS, capabilities, public_names
from harness.pages.sources import timings
from harness.pages.summaries import navigation
from harness.pages.write import BACKENDS
from harness.processes.children import ROOT


def on_config(config: Any) -> Any:
    """Replace folders by their pages after MkDocs has read its settings."""
    config["nav"] = with_pages(config["nav"])
    return config


def on_files(files: Any, **_: object) -> Any:
    """Leave out what no page loads: source maps, and search in other languages."""
    for file in list(files):
        if file.src_uri.endswith(".map") or "/lunr/" in file.src_uri:
            files.remove(file)
    return files


def with_pages(entries: Any) -> Any:
    """Return the entries of ``nav``, with folders replaced by their pages.

    Example:
        >>> with_pages(["index.md", {"Experiments": ["generated/experiments/"]}])[1]
        ... # doctest: +ELLIPSIS
        {'Experiments': [{'Absent tasks': ['generated/experiments/absent/index.md', ...
    """
    if not isinstance(entries, list):
        return entries
    nav: list[Any] = []
    for entry in entries:
        if isinstance(entry, Mapping):
            nav.append({title: with_pages(pages) for title, pages in entry.items()})
        else:
            nav += FOLDERS[entry]() if entry in FOLDERS else [entry]
    return nav


def _benchmarks() -> list[Any]:
    return [{q.title: f"generated/benchmarks/{q.name}.md"} for q in timings()]


def _wrappers() -> list[Any]:
    pages = sorted((ROOT / "docs" / "wrappers").glob("*.md"))
    return [f"wrappers/{page.name}" for page in pages]


def _reference(backend: str) -> list[Any]:
    pages = capabilities(public_names(BACKENDS), backend)
    return [
        {title: f"generated/reference/{backend}/{capability}.md"}
        for capability, title in pages.items()
    ]


FOLDERS: Mapping[str, Callable[[], list[Any]]] = {
    "generated/experiments/": navigation,
    "generated/benchmarks/": _benchmarks,
    "wrappers/": _wrappers,
    **{f"generated/reference/{name}/": partial(_reference, name) for name in HUBS},
}
"""Folder in ``docs/`` -> the entries of its pages."""
