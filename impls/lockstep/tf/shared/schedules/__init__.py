"""Learning-rate policies for both backends of TensorFlow."""
