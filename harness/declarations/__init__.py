"""What a TOML file may declare: experiments, sweeps, predictions; and what is wrong.

``declare`` reads an experiment and expands it into runs, ``tune`` has its sweep,
``primaries`` its predictions, ``toml_files`` the errors that name file, line and key.
"""
