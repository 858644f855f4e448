"""Learning-rate policies."""

from __future__ import annotations

from lockstep import errors
from lockstep.tests.kit import Mistake

__all__ = ["MISTAKES", "SIGNATURES"]

SIGNATURES = {
    "lr_policies.cosine_decay": "global_step, learning_rate, decay_steps, power=1.0, "
    "begin_decay_at=0, min_lr=0.0, warmup_steps=0",
    "lr_policies.exp_decay": "global_step, learning_rate, decay_steps, decay_rate, "
    "use_staircase_decay, begin_decay_at=0, min_lr=0.0",
    "lr_policies.fixed_lr": "global_step, learning_rate",
    "lr_policies.inv_poly_decay": "global_step, learning_rate, decay_steps, min_lr, "
    "power=1.0, begin_decay_at=0, warmup_steps=0, name='learning_rate'",
    "lr_policies.piecewise_constant": "global_step, learning_rate, boundaries, "
    "decay_rates, steps_per_epoch=None",
    "lr_policies.poly_decay": "global_step, learning_rate, decay_steps, power=1.0, "
    "begin_decay_at=0, min_lr=0.0, warmup_steps=0",
    "lr_policies.transformer_policy": "global_step, learning_rate, d_model, "
    "warmup_steps, max_lr=None, coefficient=1.0, dtype='float32'",
}

MISTAKES: dict[str, Mistake] = {
    "no boundaries": (
        lambda k: k.ls.lr_policies.piecewise_constant(4, 0.1, [], []),
        errors.NoBoundariesError,
        "boundaries: expected at least one, got none",
    ),
    "boundaries that do not rise": (
        lambda k: k.ls.lr_policies.piecewise_constant(4, 0.1, [5, 3], [0.5, 0.1]),
        errors.OutOfRangeError,
        r"boundaries of which one range holds at this step, got \[5, 3\]; sort them",
    ),
    "boundaries between steps": (
        lambda k: k.ls.lr_policies.piecewise_constant(4, 0.1, [1.5], [0.1]),
        errors.OutOfRangeError,
        r"boundaries: expected integers, got \[1.5\]",
    ),
    "no steps of decay": (
        lambda k: k.ls.lr_policies.poly_decay(4, 0.1, 0),
        errors.OutOfRangeError,
        "poly_decay: decay_steps: expected",
    ),
    "a step below 0": (
        lambda k: k.ls.lr_policies.fixed_lr(-1, 0.1),
        errors.OutOfRangeError,
        "fixed_lr: global_step: expected an integer >= 0",
    ),
}
