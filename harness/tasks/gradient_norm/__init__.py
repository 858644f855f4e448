"""Two functions that clip the same gradients: the multitask one, and the framework's.

No net: lists of gradients, in some of which tensors are all zero.
"""
