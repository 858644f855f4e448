"""Hooks that MkDocs and Griffe call while the site is built."""
