"""LARC over a model's gradients: ours, and a loop over the tensors."""

RATE, ETA, EPSILON = 0.1, 0.001, 1e-7
"""The learning rate, LARC's share of it, and what is added to a gradient's norm."""
