"""Shared code of tasks with embeddings, whose rows may have limited norms.

A step names a few rows of each table. Their norms are limited by
``VariableClippingOptimizer`` after the step, by one of a task's alternatives, or not at
all. Rows are measured in NumPy, in the same way for all backends.
"""
