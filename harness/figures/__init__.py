"""How figures look and are written: themes, axes, files of several formats."""
