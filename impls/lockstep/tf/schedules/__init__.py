"""Learning-rate policies (TensorFlow)."""
