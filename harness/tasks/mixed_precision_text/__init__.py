"""A small causal transformer on bytes of text, trained in several precisions.

Some steps have an infinite gradient, to test how each loss scale reacts.
"""
