"""A hook of MkDocs that adds the generated pages to the navigation.

In ``nav`` of ``mkdocs.yml``, a folder of ``docs/generated/`` is replaced by all of its
pages. So new experiments, benchmarks and API pages need no entry of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from harness.pages.findings.sources import BENCHMARKS, EXPERIMENTS, Source
from harness.pages.library.reference import CAPABILITIES, HUBS, reference_pages
from harness.pages.write import BACKENDS

__all__ = ["FOLDERS", "on_config", "with_pages"]


def on_config(config: Any) -> Any:
    """Replace folders by their pages after MkDocs has read its settings."""
    config["nav"] = with_pages(config["nav"])
    return config


def with_pages(entries: list[Any]) -> list[Any]:
    """Return the entries of ``nav``, with folders replaced by their pages.

    Example:
        >>> with_pages(["index.md", {"Experiments": ["generated/experiments/"]}])[1]
        ... # doctest: +ELLIPSIS
        {'Experiments': [{'Absent genres': 'generated/experiments/absent_genres.md'...
    """
    nav: list[Any] = []
    for entry in entries:
        if isinstance(entry, Mapping):
            nav.append({title: _within(value) for title, value in entry.items()})
        elif entry in FOLDERS:
            pages = FOLDERS[entry]()
            nav += [{title: f"{entry}{page}"} for title, page in pages.items()]
        else:
            nav.append(entry)
    return nav


def _within(value: Any) -> Any:
    return with_pages(value) if isinstance(value, list) else value


def _questions(source: Source) -> dict[str, str]:
    return {question.title: f"{question.name}.md" for question in source.questions()}


def _reference(backend: str) -> dict[str, str]:
    pages = reference_pages(BACKENDS)
    return {
        title: f"{capability}.md"
        for capability, title in CAPABILITIES.items()
        if f"{backend}/{capability}.md" in pages
    }


FOLDERS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "generated/experiments/": partial(_questions, EXPERIMENTS),
    "generated/benchmarks/": partial(_questions, BENCHMARKS),
    **{f"generated/reference/{name}/": partial(_reference, name) for name in HUBS},
}
"""Folder in ``docs/`` -> the titles of its pages, each with its file."""
