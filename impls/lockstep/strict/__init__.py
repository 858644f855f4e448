"""Signatures of the originals, and what binds them to a backend's classes."""
