"""TensorFlow 1's optimizers."""

from lockstep.skeleton.optimizers.classes import GradientDescentOptimizer

__all__ = ["GradientDescentOptimizer"]
