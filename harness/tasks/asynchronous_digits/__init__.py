"""Workers that train a digit classifier asynchronously, in simulated time.

Every method has the same minibatches, the same step durations and the same network.
"""
