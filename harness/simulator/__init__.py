"""Asynchronous workers in simulated time: deterministic, in NumPy, in one process.

Each method of data-parallel training is one file. :func:`simulate` runs its workers in
simulated seconds. The same seed gives the same order of events, and so the same
staleness of every push.

>>> import numpy as np
>>> def gradients(weights, worker, generator):
...     return {"w": weights["w"] - generator.normal()}
>>> agn = AGN(Rule("GradientDescent", learning_rate=0.1), period=4)
>>> run = simulate(agn, {"w": np.array(3.0)}, gradients, workers=3, steps=120)
>>> run.steps, len(run.pushes)  # one round was not complete
(120, 29)
"""

from __future__ import annotations

from harness.simulator.agn import AGN
from harness.simulator.easgd import EASGD
from harness.simulator.events import Timing
from harness.simulator.gathering import Downpour, DynSGD
from harness.simulator.method import Method, Weights
from harness.simulator.rule import Rule
from harness.simulator.run import Push, Run, simulate
from harness.simulator.synchronous import Synchronous

__all__ = [
    "AGN",
    "EASGD",
    "Downpour",
    "DynSGD",
    "Method",
    "Push",
    "Rule",
    "Run",
    "Synchronous",
    "Timing",
    "Weights",
    "simulate",
]
