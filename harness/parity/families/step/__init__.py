"""Cases of ``optimize_loss`` and of the sum of penalties."""
