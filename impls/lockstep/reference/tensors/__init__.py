"""Functions of tensors that several rooms of the package need."""
