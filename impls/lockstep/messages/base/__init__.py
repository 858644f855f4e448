"""Parameters, checks and error sentences of every wrapper."""
