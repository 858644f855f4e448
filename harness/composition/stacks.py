"""The stacks whose state must survive a checkpoint, on every backend."""

from __future__ import annotations

from harness.composition.layers import BASES

__all__ = ["FEW_STACKS", "STACKS"]

STACKS: tuple[str, ...] = (
    *BASES,
    "multitask Adam",
    "rows Adam",
    "fixed Momentum",
    "dynamic Adam",
    "patient Momentum",
    "masters-dynamic Adam",
    "masters-backoff Adam",
    "masters-logmax Momentum",
    "rows dynamic Adagrad",
    "multitask rows AdamW",
    "masters-dynamic multitask Adam",
    "masters-backoff rows Ftrl",
    "clipped multitask rows Adam",
    "rows multitask patient Momentum",
    "masters-logmax multitask rows RMSProp",
    "masters-dynamic rows multitask Adagrad",
    "dynamic rows NovoGrad",
    "masters-dynamic multitask NovoGrad",
    "agn Momentum",
    "agn Adam",
    "agn NovoGrad",
    "agn-delta Adam",
    "agn rows Momentum",
    "dynamic agn Adam",
    "agn multitask rows NovoGrad",
    "clipped agn rows RMSProp",
)
"""Each is a run of 50 steps that is saved at every step. Add a stack with one line."""

FEW_STACKS: tuple[str, ...] = (
    "GradientDescent",
    "fixed Momentum",
    "rows dynamic Adagrad",
    "multitask rows AdamW",
    "masters-backoff rows Ftrl",
    "clipped multitask rows Adam",
    "rows multitask patient Momentum",
    "masters-logmax multitask rows RMSProp",
    "masters-dynamic multitask NovoGrad",
    "agn Momentum",
    "agn-delta Adam",
)
"""A subset that contains every layer and base optimizer at least once."""
