"""Cases of learning-rate policies."""
