"""The checkout, the size of the code and its mutants."""
