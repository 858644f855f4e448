"""Shared code of tasks with text: bytes of Python's help, and a causal transformer.

The text is part of Python, so nothing is downloaded. Windows and first weights are
drawn in NumPy, so all backends start with the same data.
"""
