"""One optimizer step over a model's shapes: bare, wrapped, and as people write it.

No network is run: gradients are drawn once and stay, for the question is what the
optimizer's step costs.
"""
