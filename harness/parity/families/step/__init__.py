"""Cases of ``optimize_loss`` and of the total of penalties."""
