"""Results as facts: JSON Lines that only ever grow, one line a run.

``record`` has the record and how it is read and written, ``log`` the file that grows,
``files`` the folders, ``code`` the digests of the code that a run imported.
docs/records.md describes every key.
"""
