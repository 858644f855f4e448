"""A deep net trained at every rate of a sweep: over which of them does it train?

One run is one net, batch and method at all rates, so that each seed has a range of its
own.
"""
