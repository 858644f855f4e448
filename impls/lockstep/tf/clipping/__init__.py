"""Clipping of gradients and of rows, and LARC (TensorFlow)."""
