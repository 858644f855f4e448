"""Parameters, checks and error sentences of gradient and row clipping, and of LARC."""
