"""``lockstep port``: change the imports of a TensorFlow 1 program to Lockstep's.

``syntax`` parses a program with libcst, ``rewrite`` computes the changes, ``files``
reads and writes files, ``report`` prints the result, and ``command`` is the command
line.
"""
