"""Parameters, checks and error sentences of ``optimize_loss``."""
