"""Doing runs: ``run`` finds those that are missing and records their outcomes.

They are done by ``worker`` processes. ``check`` repeats recorded runs.
"""
