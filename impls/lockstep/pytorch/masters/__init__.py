"""Float32 master weights of half-precision parameters (PyTorch)."""
