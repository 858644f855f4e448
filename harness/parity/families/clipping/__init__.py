"""Cases of clipping and of LARC."""
