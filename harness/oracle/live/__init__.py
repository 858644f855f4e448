"""Code that runs under Python 3.7 with TensorFlow 1.15: no later syntax or library."""
