"""Stacks of wrappers: which there are, what nests in what, and how each is checked.

``layers`` names wrappers and base optimizers and builds stacks of them on any backend;
``stacks`` lists those that must survive a checkpoint; ``nesting`` says what comes of
each pair. A new algorithm is a line in ``layers`` and a line in ``stacks``.
"""
