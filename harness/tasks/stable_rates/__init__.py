"""A deep net, trained at every rate of a sweep to find the range of stable rates.

One run is one net, batch and method at all rates, so each seed has its own range.
"""
