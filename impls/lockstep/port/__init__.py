"""``lockstep port``: change the imports of a TensorFlow 1 program to Lockstep's.

``command`` is the command line; it calls ``port`` of ``rewrite``, which parses a
program by ``syntax`` with libcst.
"""
