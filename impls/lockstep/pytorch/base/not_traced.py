"""Functions that ``torch.compile`` calls as they are, without tracing into them.

A step here looks at the values of gradients and counts in plain numbers: traced, it
would be compiled anew at every step. The public ``torch.compiler.disable`` costs two
seconds at import, so this is torch's own decorator for its optimizers' methods.
"""

import torch

__all__ = ["untraced"]

untraced = torch._disable_dynamo
