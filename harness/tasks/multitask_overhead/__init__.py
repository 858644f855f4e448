"""One optimizer step on a model's shapes: bare, wrapped, and as a naive loop."""
