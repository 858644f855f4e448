"""Accumulated gradient normalization for asynchronous workers (TensorFlow)."""
