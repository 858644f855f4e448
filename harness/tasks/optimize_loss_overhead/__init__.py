"""A whole training step: ours in one call, and a hand-written loop in plain torch."""
