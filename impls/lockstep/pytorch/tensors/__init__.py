"""Functions of tensors that several capabilities need (PyTorch)."""
