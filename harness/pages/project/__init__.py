"""Inserts about the checkout, the size of the code, and its mutants."""
