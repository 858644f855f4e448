"""What runs under Python 3.7, beside TensorFlow 1.15: no later syntax, no library."""
