"""Signatures of the originals, and functions that bind them to a backend's classes."""
