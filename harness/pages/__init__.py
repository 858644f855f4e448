"""Write everything under ``docs/generated/``, from the recorded results alone.

``write`` calls a file for each kind of page; they fill in ``templates``. MkDocs builds
the site from them with ``site_hooks`` and ``docstrings``. No framework is imported.
"""
