"""Parity: replay recorded trajectories through a backend and measure the distance.

golden files -> ``cases`` -> ``plan`` -> one ``worker`` process a backend and mode,
which replays each case through its family in ``families`` and compares with
``distance`` -> rows -> ``report``.
"""
