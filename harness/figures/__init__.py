"""Draw figures: themes, axes, and files of several formats."""
