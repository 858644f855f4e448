"""The oracle: recorded cases and old programs run on TensorFlow 1.15 itself.

TensorFlow 1.15 needs Python 3.7. The code that imports it is in ``live/`` and is run by
the interpreter of a separate environment. This package starts it and reads its output.
"""
