"""What every wrapper has in common (Keras 3)."""
