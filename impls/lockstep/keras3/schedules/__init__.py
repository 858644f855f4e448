"""Learning-rate policies and schedules (Keras 3)."""
