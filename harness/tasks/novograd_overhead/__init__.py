"""A step of NovoGrad: ours, and the published rule as a loop over tensors."""

RATE, BETA1, BETA2, EPSILON = 1e-4, 0.95, 0.98, 1e-8
"""The learning rate, and the defaults of the constructor."""
