"""Write everything under ``docs/generated/``, from the recorded results alone.

results -> ``parity``, ``findings``, ``library``, ``project`` -> ``markup`` -> ``write``
-> Markdown, plots and data, from which MkDocs builds the site with ``hooks``. No
framework is imported.
"""

from harness.pages.write import write_pages

__all__ = ["write_pages"]
