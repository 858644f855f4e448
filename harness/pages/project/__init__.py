"""Inserts about the checkout."""
