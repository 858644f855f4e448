"""Pages: everything under ``docs/generated/`` is written here, from results alone.

results -> ``parity``, ``findings``, ``library``, ``project`` -> ``markup`` -> ``write``
-> Markdown, plots and data that MkDocs, with ``hooks``, turns into the site. No
framework is imported.
"""

from harness.pages.write import write_pages

__all__ = ["write_pages"]
