"""Random cases, drawn from a seed, to be recorded on the live originals.

``numbers.py`` draws values, ``parts.py`` what families have in common, ``families.py``
the inputs of a case of each family that TensorFlow 1.15 itself can run.
"""
