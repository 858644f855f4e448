"""Stacks of wrappers: the stacks, how wrappers nest, and how each is checked.

``layers`` names wrappers and base optimizers, and builds stacks of them on any backend.
``stacks`` lists those that must survive a checkpoint. ``nesting`` declares the result
of each pair. A new algorithm is a line in ``layers`` and a line in ``stacks``.
"""
