"""Child processes of this Python: how they are started, watched and stopped."""
