"""Learning-rate policies and schedules (PyTorch)."""
