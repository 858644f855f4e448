"""Clipping of gradients and of rows, and LARC (Keras 3)."""
