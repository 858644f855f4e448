"""What the theme brings along and no page loads is not in the site."""

from __future__ import annotations

from dataclasses import dataclass

from harness.pages.site_hooks import on_files


@dataclass
class Listed:
    """A file of the site by its path."""

    src_uri: str


def test_maps_and_other_languages_are_left_out_and_nothing_else() -> None:
    paths = [
        "assets/javascripts/bundle.1.min.js",
        "assets/javascripts/bundle.1.min.js.map",
        "assets/stylesheets/main.1.min.css.map",
        "assets/javascripts/lunr/min/lunr.de.min.js",
        "assets/javascripts/workers/search.1.min.js",
        "multitask.md",
    ]
    files = [Listed(path) for path in paths]
    assert [file.src_uri for file in on_files(files)] == [paths[0], *paths[4:]]
