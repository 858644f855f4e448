"""A whole training step: ours in one call, and written by hand in plain torch."""
