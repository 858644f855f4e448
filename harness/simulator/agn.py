"""Accumulated gradient normalization.

J. Hermans, G. Spanakis, R. Moeckel, "Accumulated Gradient Normalization", 2017
(arXiv:1710.02368), and ``tf.contrib.opt.AGNOptimizer`` of TensorFlow 1.15.

A round of P = ``period`` local steps t with gradients g_t at the worker's weights w_t:

- ``commit="gradient"``, as TensorFlow's code: the worker sends a / P with a = sum g_t,
  the server has c = rule(c, a / P);
- ``commit="delta"``, as the paper: the worker sends d / P with d = sum (w_t+1 - w_t),
  the server has c = c + d / P.

With gradient descent at a constant rate these are equal but for rounding.
"""

from __future__ import annotations

import numpy as np

from harness.simulator.gathering import Gathering
from lockstep.interface import Array


class AGN(Gathering):
    """Push the mean of a round."""

    def committed(self, gathered: Array) -> Array:
        """Return gathered / P."""
        return np.asarray(gathered / gathered.dtype.type(self.period))
