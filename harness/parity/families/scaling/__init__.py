"""Cases of loss scales and loss scaling."""
