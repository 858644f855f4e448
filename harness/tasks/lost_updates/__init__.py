"""Updates that are far smaller than their weights.

There is no net, only a vector of weights with constant updates, and two ways to apply
them.
"""
