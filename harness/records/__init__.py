"""Results as facts: JSON Lines files that are only appended to, one line per run.

``record`` defines the record and its JSON form, ``files`` its folders and files,
``code`` the digest of the code that computed a run. docs/records.md describes the keys.
"""
