"""Cases of asynchronous workers."""
