"""Whole training steps of three tasks, with and without a wrapper, timed in turns.

Multitask digits, embeddings with rows of limited norm, and a byte transformer.
"""
