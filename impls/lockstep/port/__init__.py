"""``lockstep port``: change the imports of a TensorFlow 1 program to Lockstep's.

``syntax`` reads a program with libcst, ``rewrite`` decides what changes, ``files``
reads and writes, ``report`` shows the result, and ``command`` is the command line.
"""
