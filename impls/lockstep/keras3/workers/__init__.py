"""Accumulated gradient normalization for asynchronous workers (Keras 3)."""
