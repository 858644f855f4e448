"""Clipping of gradients and LARC, for both backends of TensorFlow."""
