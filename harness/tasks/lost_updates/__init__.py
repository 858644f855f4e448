"""Weights that are asked to take updates far smaller than they are.

No net: a vector of weights, a constant update each, and two ways to take it.
"""
