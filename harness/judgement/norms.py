"""Whether the original's global norm grows by tensors of zeros: its recorded cases.

``tf.contrib.opt`` says that without its ``clip_gradients_by_global_norm`` "the global
norm would be underestimated" for absent tasks, whose gradients are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.parity.cases import GOLDEN, Case, array, read_cases
from lockstep.interface import Array
from lockstep.reference import clip_by_global_norm


def equal_without_zeros() -> tuple[int, int]:
    """Return how many recorded norms have the bits of the norm without zeros.

    The second number counts the recorded lists of gradients that have a tensor of zeros
    and a finite norm above 0.
    """
    equal = count = 0
    for case in read_cases(GOLDEN, ["multitask_clip"]):
        if "raises" in case.expected or case.inputs.get("dtype") == "float16":
            continue
        for gradients, norm in _lists(case):
            nonzero = [gradient for gradient in gradients if gradient.any()]
            if np.isfinite(norm) and norm > 0 and len(nonzero) < len(gradients):
                _, stock = clip_by_global_norm(nonzero, float(case.inputs["clip_norm"]))
                equal += int(stock == norm)
                count += 1
    return equal, count


def _lists(case: Case) -> Iterator[tuple[list[Array], Array]]:
    """Yield the gradients of each step that are not None, with the recorded norm."""
    inputs, results = [case.inputs["gradients"]], [case.expected]
    if "steps" in case.expected:
        inputs, results = case.inputs["gradients"], case.expected["steps"]
    for values, expected in zip(inputs, results, strict=True):
        present = [array(value, "float32") for value in values if value is not None]
        yield present, array(expected["global_norm"], "float32")
