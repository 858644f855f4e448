"""Parameters, checks and error sentences of float32 master weights."""
