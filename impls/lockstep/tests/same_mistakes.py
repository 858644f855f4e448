"""Mistakes that every backend refuses with one class of error and one sentence.

Those of one tool are in its module in ``tools``, with the kinds of wrappers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep import errors
from lockstep.tests.kit import Kit, Mistake, Wrap
from lockstep.tests.tools import collected

__all__ = ["MISTAKES"]

WRAPPERS: dict[str, Wrap] = collected("WRAPPERS")
"""A wrapper of each kind around an optimizer."""

NO_VARIABLE = "var_list: expected a list of variables, got"


def differentiated(**wrong: Any) -> Callable[[Kit, Any, Any], Any]:
    """Call ``compute_gradients`` with a wrong argument."""

    def call(kit: Kit, optimizer: Any, variable: Any) -> Any:
        right = {"loss": kit.loss(variable), "var_list": [variable]}
        return optimizer.compute_gradients(**{**right, **wrong})

    return call


def applied(pairs: Callable[[Kit, Any], Any]) -> Callable[[Kit, Any, Any], Any]:
    """Call ``apply_gradients`` with wrong pairs."""
    return lambda kit, optimizer, variable: optimizer.apply_gradients(
        pairs(kit, variable)
    )


OF_WRAPPERS: dict[str, Mistake] = {
    "a number in var_list": (
        differentiated(var_list=[3]),
        errors.VarListError,
        f"{NO_VARIABLE} 3; list those",
    ),
    "None in var_list": (
        differentiated(var_list=[None]),
        errors.VarListError,
        f"{NO_VARIABLE} None",
    ),
    "an object in var_list": (
        differentiated(var_list=[object()]),
        errors.VarListError,
        f"{NO_VARIABLE} an object",
    ),
    "a number as var_list": (
        differentiated(var_list=3),
        errors.VarListError,
        f"{NO_VARIABLE} 3",
    ),
    "a text as var_list": (
        differentiated(var_list="w"),
        errors.VarListError,
        f"{NO_VARIABLE} 'w'",
    ),
    "a text as the loss": (
        differentiated(loss="loss"),
        errors.LossNotCallableError,
        r"loss: expected a .*callable.*, got str; ",
    ),
    "a number as pairs": (
        applied(lambda kit, w: 3),
        errors.MalformedPairsError,
        r"expected an iterable of \(gradient, variable\) pairs, got 3",
    ),
    "no pairs": (
        applied(lambda kit, w: []),
        errors.NoGradientsError,
        "expected at least one .*got an empty list",
    ),
    "absent gradients": (
        applied(lambda kit, w: [(None, w)]),
        errors.NoGradientsError,
        "expected a gradient for at least one variable, got None for every one of w",
    ),
    "three in a pair": (
        applied(lambda kit, w: [(kit.tensor(1, 1), w, 1)]),
        errors.MalformedPairsError,
        "got tuple at position 0",
    ),
    "a pair the other way": (
        applied(lambda kit, w: [(w, kit.tensor(1, 1))]),
        errors.MalformedPairsError,
        "put the gradient first",
    ),
    "another shape": (
        applied(lambda kit, w: [(kit.tensor(1, 1, 1), w)]),
        errors.ShapeError,
        r"a gradient of shape \[2\] for 'w', got \[3\]; pass the gradient of this",
    ),
    "another dtype": (
        applied(lambda kit, w: [(kit.tensor(1, 1, dtype="float64"), w)]),
        errors.DtypeError,
        "a gradient of dtype float32 for 'w', got float64; cast the gradient",
    ),
    "a number as global_step": (
        lambda kit, optimizer, w: optimizer.apply_gradients(
            [(kit.tensor(1, 1), w)], global_step=3
        ),
        errors.DtypeError,
        "global_step.* integer.*got (an )?int",
    ),
}

MISTAKES: dict[str, Mistake] = {
    **{
        f"{kind}: {name}": (
            lambda kit, wrap=wrap, call=call: call(
                kit, wrap(kit, w := kit.variable()), w
            ),
            error,
            words,
        )
        for kind, wrap in WRAPPERS.items()
        for name, (call, error, words) in OF_WRAPPERS.items()
    },
    **collected("MISTAKES"),
}
"""Name -> (call, what it raises, the words of its sentence)."""
