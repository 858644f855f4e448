"""Parts of AGN for both backends of TensorFlow."""
