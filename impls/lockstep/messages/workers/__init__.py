"""Parameters, checks and error sentences of accumulated gradient normalization."""
