"""Clipping the norms of a table's rows: only the rows of a step, or all rows."""
