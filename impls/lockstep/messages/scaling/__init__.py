"""Parameters, checks and error sentences of loss scales and loss scaling."""
