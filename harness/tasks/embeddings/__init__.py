"""What the tasks with embeddings share: tables of rows that are held to a norm, or not.

A step names a few rows of each table. Their norms are limited by
``VariableClippingOptimizer`` after the step, by what the alternatives of a task are, or
not at all. Rows are measured in NumPy, so that all backends are measured alike.
"""
