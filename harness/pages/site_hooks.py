"""A hook of MkDocs that adds pages to the navigation.

In ``nav`` of ``mkdocs.yml``, a folder of ``docs/generated/`` is replaced by all of its
pages, and ``*/`` by the pages about wrappers that have no entry. So new experiments,
benchmarks, API pages and pages about wrappers need none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from harness.pages.reference import CAPABILITIES, HUBS, reference_pages
from harness.pages.sources import timings
from harness.pages.summaries import navigation
from harness.pages.write import BACKENDS

FURTHER = "*/"
"""Entry of ``nav`` for the pages about wrappers that it does not name."""


def on_config(config: Any) -> Any:
    """Replace folders by their pages after MkDocs has read its settings."""
    nav = config["nav"]
    config["nav"] = with_pages(nav, further_pages(nav, Path(config["docs_dir"])))
    return config


def further_pages(nav: list[Any], docs: Path) -> list[dict[str, str]]:
    """Return the pages about wrappers that have no entry, each under its heading."""
    named = set(_files(nav))
    paths = [
        path for name in CAPABILITIES for path in sorted((docs / name).glob("*.md"))
    ]
    files = {path.relative_to(docs).as_posix(): path for path in paths}
    return [{_heading(path): file} for file, path in files.items() if file not in named]


def _files(nav: Any) -> Iterator[str]:
    """Yield the files that ``nav`` names, at any depth."""
    if isinstance(nav, str):
        yield nav
    values = nav.values() if isinstance(nav, Mapping) else nav
    for value in [] if isinstance(nav, str) else values:
        yield from _files(value)


def _heading(path: Path) -> str:
    lines = path.read_text("utf-8").splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))


def with_pages(
    entries: list[Any], further: list[dict[str, str]] | None = None
) -> list[Any]:
    """Return the entries of ``nav``, with folders replaced by their pages.

    ``further``: the pages for ``*/``.

    Example:
        >>> with_pages(["index.md", {"Experiments": ["generated/experiments/"]}])[1]
        ... # doctest: +ELLIPSIS
        {'Experiments': [{'Absent tasks': ['generated/experiments/absent/index.md', ...
    """
    nav: list[Any] = []
    for entry in entries:
        if isinstance(entry, Mapping):
            nav.append({k: _within(value, further) for k, value in entry.items()})
        elif entry == FURTHER:
            nav += further or []
        elif entry in FOLDERS:
            nav += FOLDERS[entry]()
        else:
            nav.append(entry)
    return nav


def _within(value: Any, further: list[dict[str, str]] | None) -> Any:
    return with_pages(value, further) if isinstance(value, list) else value


def _benchmarks() -> list[Any]:
    return [{q.title: f"generated/benchmarks/{q.name}.md"} for q in timings()]


def _reference(backend: str) -> list[Any]:
    pages = reference_pages(BACKENDS)
    return [
        {title: f"generated/reference/{backend}/{capability}.md"}
        for capability, title in CAPABILITIES.items()
        if f"{backend}/{capability}.md" in pages
    ]


FOLDERS: Mapping[str, Callable[[], list[Any]]] = {
    "generated/experiments/": navigation,
    "generated/benchmarks/": _benchmarks,
    **{f"generated/reference/{name}/": partial(_reference, name) for name in HUBS},
}
"""Folder in ``docs/`` -> the entries of its pages."""


UNUSED = ("assets/javascripts/*.map", "assets/stylesheets/*.map", "*/lunr/*")
"""Source maps, and search stemmers for other languages."""


def on_files(files: Any, **_: object) -> Any:
    """Return the files of the site without :data:`UNUSED`."""
    for file in list(files):
        if any(fnmatch(file.src_uri, pattern) for pattern in UNUSED):
            files.remove(file)
    return files
