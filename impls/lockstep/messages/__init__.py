"""Words, said once: names, defaults, admissible values and error sentences.

Nothing here computes with tensors and nothing imports a framework. Every backend
takes its parameter tables and its sentences from here; the arithmetic is its own.
"""
