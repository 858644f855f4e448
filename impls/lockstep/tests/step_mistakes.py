"""Mistakes in the arguments of ``optimize_loss`` that every backend tells alike."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

__all__ = ["mistakes"]

Mistake = tuple[dict[str, Any], type[Exception], str]


def mistakes(ls: ModuleType, weight: Any) -> list[Mistake]:
    """Return arguments, their error and words of its sentence.

    Args:
        ls: the backend.
        weight: a variable of it.
    """
    name = re.escape(ls.__name__)
    no_dict = "loss_scaling_params: expected a dict"
    unscaled = "loss_scaling: expected dtype='mixed' beside it.*; pass dtype='mixed'"
    several = r"needs learning_rate, decay_steps too; .*functools\.partial\(policy"
    return [
        ({"learning_rate_decay_fn": -0.1}, ValueError, "a finite rate >= 0, got -0.1"),
        ({"learning_rate_decay_fn": True}, TypeError, "got True; write lambda step: 0"),
        ({"learning_rate_decay_fn": None}, TypeError, "got None"),
        ({"learning_rate_decay_fn": ls.lr_policies.poly_decay}, TypeError, several),
        ({"learning_rate_decay_fn": lambda step: "0.1"}, ValueError, "got '0.1'"),
        ({"optimizer_params": [1]}, ValueError, "optimizer_params: expected a dict"),
        ({"loss_scaling_params": "x"}, ValueError, no_dict),
        ({"loss_scaling": "Backoff"}, ValueError, unscaled),
        ({"loss_scaling": 8, "dtype": "float16"}, ValueError, unscaled),
        ({"var_list": 3}, ValueError, "var_list.*got an int"),
        ({"var_list": [3]}, ValueError, "var_list.*got an int"),
        ({"var_list": []}, ValueError, "var_list.*an empty list"),
        ({"var_list": [weight, weight]}, ValueError, "var_list.*twice"),
        ({"reduction": 3}, ValueError, "reduction.*an int, without size"),
        (
            {"optimizer": ls.MultitaskOptimizerWrapper},
            TypeError,
            "that makes the stack",
        ),
        ({"optimizer": "NovoGrad"}, ValueError, rf"class {name}\.NovoGrad"),
        ({"skip_update_ph": "False", "iter_size": 2}, ValueError, "got 'False'"),
    ]
