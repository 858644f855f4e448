"""LARC on a model's gradients: ours, and a loop over the tensors."""

RATE, ETA, EPSILON = 0.1, 0.001, 1e-7
"""The learning rate, LARC's share of it, and the constant added to a gradient norm."""
