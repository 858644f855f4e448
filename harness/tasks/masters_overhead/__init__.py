"""A step on float16 weights with float32 masters: ours, and a copy loop."""

SCALE = 2.0**10
"""The constant loss scale."""

CLIP = 1.0
"""The largest global norm, which gradients of deviation 0.02 exceed by far."""
