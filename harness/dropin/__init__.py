"""Programs written for TensorFlow 1.15, of which only the imports change here."""
