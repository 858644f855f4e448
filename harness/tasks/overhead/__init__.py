"""What the benchmarks of steps share: the models' shapes, and how steps are made.

No network is run: gradients are drawn once and stay, for the question is what the
optimizer's step costs.
"""
