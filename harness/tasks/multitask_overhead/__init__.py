"""One optimizer step over a model's shapes: bare, wrapped, and as people write it."""
