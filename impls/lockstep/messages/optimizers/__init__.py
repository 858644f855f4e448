"""Parameters, checks and error sentences of the optimizers."""
