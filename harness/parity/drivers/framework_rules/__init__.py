"""The update rules of PyTorch and Keras in NumPy."""
