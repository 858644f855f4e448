"""Lockstep for NumPy arrays: the smallest backend, to copy and go on from."""

from lockstep.registry import installed, missing_framework

if not installed("skeleton"):
    raise missing_framework("skeleton")

from lockstep.skeleton.multitask import MultitaskOptimizerWrapper
from lockstep.skeleton.optimizers import GradientDescentOptimizer
from lockstep.skeleton.tensors.variable import Variable

__all__ = ["GradientDescentOptimizer", "MultitaskOptimizerWrapper", "Variable"]
