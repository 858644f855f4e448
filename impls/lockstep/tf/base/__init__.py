"""What every wrapper has in common (TensorFlow)."""
