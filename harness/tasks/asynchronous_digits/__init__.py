"""Workers that train a digit classifier asynchronously, in simulated time.

Every method gets the same minibatches, steps of the same length and the same network.
"""
