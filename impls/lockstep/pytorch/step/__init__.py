"""``optimize_loss`` and the parts of its training step (PyTorch)."""
