"""A deep narrow net on handwritten digits, whose gradients lie at float16's floor.

The loss is multiplied by a small power of two and the rate divided by it: nothing
changes in float32, and in float16 most gradients vanish unless the loss is scaled.
"""
