"""Pages: everything under ``docs/generated/`` is written here, from results alone.

results -> ``parity``, ``findings``, ``rules`` -> ``templates`` -> ``write`` ->
Markdown, plots and data that MkDocs turns into the site. No framework is imported.
"""

from harness.pages.write import write_pages

__all__ = ["write_pages"]
