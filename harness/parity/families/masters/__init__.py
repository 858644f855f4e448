"""Cases of float32 masters."""
