"""The update rules as functions of tensors."""
