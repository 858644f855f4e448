"""What tasks with text share: bytes of Python's own help, and a causal transformer.

The text comes with Python, so nothing is downloaded. Windows and first weights are
drawn in NumPy, so that all backends begin alike.
"""
