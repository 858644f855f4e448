"""Fresh cases, drawn from a seed, for the live originals to record.

``numbers.py`` draws values, ``parts.py`` what the families share, ``families.py`` the
inputs of a case of each family that TensorFlow 1.15 itself can run.
"""
