"""Shared code of the benchmarks of steps: the models' shapes, and builders of steps.

No network is run. Gradients are drawn once and stay constant, because only the cost of
the optimizer's step is measured.
"""
