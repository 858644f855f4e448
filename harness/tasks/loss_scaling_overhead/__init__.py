"""A step with a scaled loss and a clipped gradient, and moving the scale alone."""

SCALE = 2.0**15
"""The loss scale that everything begins with."""

CLIP = 1.0
"""The largest global norm, which gradients of deviation 0.02 exceed by far."""
