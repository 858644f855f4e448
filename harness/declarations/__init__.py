"""What a TOML file may declare (experiments, sweeps, predictions), and its errors.

``declare`` reads an experiment and expands it into runs. ``tune`` defines its sweep,
``primaries`` its predictions, ``toml_files`` the errors that name file and key.
"""
