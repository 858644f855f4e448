"""What the tasks with embeddings share: tables of rows that are held to a norm, or not.

A step names a few rows of each table. Their norms are limited in one of three ways: not
at all; by ``VariableClippingOptimizer`` after the step; or in the lookup, which hands
out shortened rows and leaves the table as it is. Rows are measured in NumPy, so that
all backends are measured alike.
"""
