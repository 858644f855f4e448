"""Stacks of wrappers: the stacks, how wrappers nest, and how each is checked.

``wrappers`` has a module for each wrapper: its layers, its stacks that must survive a
checkpoint, and the result of each nesting. ``layers`` has the types for that and the
base optimizers, and ``stacks`` builds a stack on any backend.
"""
