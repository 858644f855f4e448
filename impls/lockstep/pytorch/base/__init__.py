"""What every wrapper has in common (PyTorch)."""
