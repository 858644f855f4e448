"""A step with loss scaling and gradient clipping, and an update of the scale alone."""

SCALE = 2.0**15
"""The initial loss scale of all variants."""

CLIP = 1.0
"""The largest global norm, which gradients of deviation 0.02 exceed by far."""
