"""Loss scales and the wrappers that apply them (PyTorch)."""
