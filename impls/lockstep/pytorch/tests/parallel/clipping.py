"""Clipping and LARC in data-parallel training."""

from __future__ import annotations

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import (
    NORMS,
    RATE,
    Case,
    Pairs,
    multitask,
)

__all__ = ["CASES"]

LARC = {"larc_eta": 0.25}


def clipped_pairs(pairs: Pairs) -> Pairs:
    return ls.clip_gradients_by_global_norm(pairs, 0.5)[0]


def clipped_by_norm(pairs: Pairs) -> Pairs:
    return ls.clip_gradients_by_norm(pairs, 0.5)


def clipped_tensors(pairs: Pairs) -> Pairs:
    clipped, _ = ls.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
    return list(zip(clipped, [parameter for _, parameter in pairs], strict=True))


def larc(pairs: Pairs) -> Pairs:
    return ls.post_process_gradients(pairs, [], RATE, None, LARC)


CASES: dict[str, dict[str, Case]] = {
    "`clip_gradients_by_global_norm`, `clip_by_global_norm`, "
    "`clip_gradients_by_norm`": {
        "clipped pairs": Case(multitask, clipped_pairs, **NORMS),
        "clipped tensors": Case(multitask, clipped_tensors, **NORMS),
        "clipped by norm": Case(multitask, clipped_by_norm, **NORMS),
    },
    "`post_process_gradients` with LARC": {"LARC": Case(multitask, larc, **NORMS)},
}
