"""Accumulated gradient normalization for asynchronous workers (PyTorch)."""
