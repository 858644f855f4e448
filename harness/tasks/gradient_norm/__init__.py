"""Two functions that clip the same gradients: the multitask one, and the framework's.

There is no net, only lists of gradients. In some of them, tensors are all zero.
"""
