"""Holding the rows of a table to a norm: only those of a step, or all of them."""
