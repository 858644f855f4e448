"""Parity: replay recorded trajectories through a backend and measure the distance.

golden files -> ``cases`` -> ``plan`` -> one ``worker`` process per backend and mode.
The worker replays each case by its family in ``families`` and compares the results by
``distance`` -> rows -> ``report``.
"""
