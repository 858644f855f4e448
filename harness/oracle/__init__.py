"""The originals, alive: recorded cases and old programs run on TensorFlow 1.15 itself.

TensorFlow 1.15 needs Python 3.7, so what imports it lies in ``live/`` and is run by the
interpreter of an environment of its own. Here is what starts it and reads its answers.
"""
