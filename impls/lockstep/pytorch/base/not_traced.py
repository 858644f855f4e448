"""Functions that ``torch.compile`` calls as they are, without tracing into them.

A step reads the values of gradients and counts with Python numbers. If it were traced,
it would be compiled again at every step. The public ``torch.compiler.disable`` adds two
seconds to the import, so this is the decorator that torch uses for its own optimizers.
"""

import torch

__all__ = ["untraced"]

untraced = torch._disable_dynamo
