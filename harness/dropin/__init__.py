"""Programs written for TensorFlow 1.15. To run them here, only imports change."""
