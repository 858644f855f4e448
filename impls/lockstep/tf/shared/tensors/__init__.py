"""Functions of tensors, for both backends of TensorFlow."""
