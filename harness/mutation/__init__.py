"""Mutation testing: change one operator of a backend, run the tests that enter it.

``nox -s mutants -- --backend reference --minutes 30`` tries mutants for half an hour
and appends a line for each to ``results/mutants/BACKEND.jsonl``. The same command
resumes where the last one stopped. Cosmic Ray finds the places and makes the changes.
It has its own environment, so only ``harness.mutation.listing`` imports it.

The first run records which functions each case and test enters, and keeps the result.

Each mutant is tried in a fresh process, which imports the changed source instead of the
module's. No file of the checkout is changed.
"""
