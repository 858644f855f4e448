"""Measure the code: its size, its repetitions, and the calls of a training step.

``nox -s layout`` counts, prints tables and writes ``results/layout.json``. The
contributing page is drawn from that file. No count makes anything fail. They show
whether the code becomes easier or harder to read.
"""
