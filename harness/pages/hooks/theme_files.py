"""A hook of MkDocs that leaves out files of the theme that no page loads."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

UNUSED = ("assets/javascripts/*.map", "assets/stylesheets/*.map", "*/lunr/*")
"""Source maps, and search stemmers for other languages."""


def on_files(files: Any, **_: object) -> Any:
    """Return the files of the site without :data:`UNUSED`."""
    for file in list(files):
        if any(fnmatch(file.src_uri, pattern) for pattern in UNUSED):
            files.remove(file)
    return files
