"""Whole training steps of three tasks, with a wrapper and without it, timed in turns.

Multitask digits, embeddings with rows of limited norm, and a byte transformer.
"""
