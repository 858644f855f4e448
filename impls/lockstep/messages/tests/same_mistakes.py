"""Mistakes that every backend refuses with one class of error and one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from lockstep.messages import errors

__all__ = ["MISTAKES", "WRAPPERS", "Kit"]


class Kit(NamedTuple):
    """What a backend makes for a mistake.

    Attributes:
        ls: the backend.
        variable: makes a variable of two ones, float32.
        tensor: makes a tensor of these values; ``dtype`` is float32 unless given.
        first: the variable -> what comes before the arguments of an optimizer.
        loss: the variable -> a loss of it, as a function without arguments.
        device: the name of the device that runs.
    """

    ls: ModuleType
    variable: Callable[[], Any]
    tensor: Callable[..., Any]
    first: Callable[[Any], list[Any]]
    loss: Callable[[Any], Callable[[], Any]]
    device: str

    def base(self, variable: Any) -> Any:
        """Return an optimizer of the variable."""
        return self.ls.GradientDescentOptimizer(*self.first(variable), 0.1)


WRAPPERS: dict[str, Callable[[Kit, Any], Any]] = {
    "multitask": lambda k, w: k.ls.MultitaskOptimizerWrapper(k.base(w)),
    "loss scale": lambda k, w: k.ls.MixedPrecisionLossScaleOptimizer(k.base(w), 4.0),
    "masters": lambda k, w: k.ls.MixedPrecisionOptimizerWrapper(k.base(w), 4.0),
    "row clip": lambda k, w: k.ls.VariableClippingOptimizer(k.base(w), {}, 1.0),
}
"""A wrapper of each kind around an optimizer."""

Mistake = tuple[Callable[..., Any], type[errors.LockstepError], str]

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
    "another gate": (
        differentiated(gate_gradients=7),
        errors.OutOfRangeError,
        "gate_gradients: expected GATE_NONE, GATE_OP or GATE_GRAPH, got 7; leave it",
    ),
    "another aggregation": (
        differentiated(aggregation_method=9),
        errors.OutOfRangeError,
        "aggregation_method: expected None, 0, 1 or 2, got 9; leave it out for None",
    ),
    "a text as the loss": (
        differentiated(loss="loss"),
        errors.LossNotCallableError,
        r"loss: expected a .*callable.*, got str; ",
    ),
    "a text as grad_loss": (
        differentiated(grad_loss="1"),
        errors.DtypeError,
        r"grad_loss: expected a number.*, got '1'; leave it out for 1",
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


def scaled(kit: Kit, scale: Any, **options: Any) -> Any:
    """Make a loss-scale optimizer."""
    base = kit.base(kit.variable())
    return kit.ls.MixedPrecisionLossScaleOptimizer(base, scale, **options)


def worker(kit: Kit, *period: int, **wrong: Any) -> Any:
    """Make an ``AGNOptimizer``."""
    base = wrong.get("optimizer", kit.base(kit.variable()))
    getter = wrong.get("getter", kit.ls.AGNCustomGetter(kit.device))
    return kit.ls.AGNOptimizer(base, 1, getter, *period)


def clipped(kit: Kit, *limits: Any) -> list[Any]:
    """Return what was given to the function that clips pairs."""
    return [[(kit.tensor(1, 1), kit.variable())], *limits]


AT_ONCE: dict[str, Mistake] = {
    "no optimizer for multitask": (
        lambda k: k.ls.MultitaskOptimizerWrapper(3),
        errors.NotAnOptimizerError,
        "ptimizer, got int; pass the optimizer whose state is to be kept",
    ),
    "no optimizer for a loss scale": (
        lambda k: k.ls.MixedPrecisionLossScaleOptimizer(3, 1.0),
        errors.NotScalableError,
        "ptimizer, got int; pass the optimizer whose loss is to be scaled",
    ),
    "no optimizer for masters": (
        lambda k: k.ls.MixedPrecisionOptimizerWrapper(3),
        errors.NotScalableError,
        "ptimizer, got int; pass the optimizer that is to train",
    ),
    "no optimizer for row clipping": (
        lambda k: k.ls.VariableClippingOptimizer(3, {}, 1.0),
        errors.NotAnOptimizerError,
        "ptimizer, got int; pass the optimizer whose steps come first",
    ),
    "no optimizer for a worker": (
        lambda k: worker(k, optimizer=3),
        errors.NotAnOptimizerError,
        "ptimizer, got int; pass the optimizer of this worker",
    ),
    "no getter": (
        lambda k: worker(k, getter=3),
        errors.GetterError,
        "got int",
    ),
    "a period of 0": (
        lambda k: worker(k, 0),
        errors.OutOfRangeError,
        "communication_period: expected an integer >= 1, got 0",
    ),
    "no loss scale": (
        lambda k: scaled(k, None),
        errors.MissingLossScaleError,
        "expected a loss scale, got None; give a number or 'dynamic'",
    ),
    "an unknown loss scale": (
        lambda k: scaled(k, "x"),
        errors.UnknownNameError,
        "loss_scale: expected a number, 'dynamic' or a loss scale, got 'x'",
    ),
    "a loss scale of 0": (
        lambda k: scaled(k, 0.0),
        errors.OutOfRangeError,
        "FixedLossScale: loss_scale_value: expected a number >= 1, got 0.0",
    ),
    "a bool as a loss scale": (
        lambda k: scaled(k, True),
        errors.OutOfRangeError,
        "FixedLossScale: loss_scale_value: expected an int or float, got True",
    ),
    "a loss scale of NaN": (
        lambda k: scaled(k, math.nan),
        errors.OutOfRangeError,
        "FixedLossScale: loss_scale_value: expected a number >= 1, got nan",
    ),
    "an unknown end": (
        lambda k: scaled(k, 1.0, at_floor="x"),
        errors.OutOfRangeError,
        "at_floor: expected 'warn' or 'raise' or 'ignore', got 'x'",
    ),
    "axes of no variables": (
        lambda k: k.ls.VariableClippingOptimizer(k.base(k.variable()), 3, 1.0),
        errors.AxesError,
        "vars_to_clip_dims: expected",
    ),
    "a row norm of 0": (
        lambda k: k.ls.VariableClippingOptimizer(k.base(k.variable()), {}, 0.0),
        errors.OutOfRangeError,
        "max_norm: expected",
    ),
    "a norm below 0": (
        lambda k: k.ls.clip_gradients_by_global_norm(*clipped(k, -1.0)),
        errors.OutOfRangeError,
        "clip_norm: expected a finite number > 0, got -1.0",
    ),
    "a norm of NaN": (
        lambda k: k.ls.clip_gradients_by_norm(*clipped(k, math.nan)),
        errors.OutOfRangeError,
        "clip_gradients: expected a finite number > 0, got nan",
    ),
    "a text to clip": (
        lambda k: k.ls.clip_by_global_norm("x", 1.0),
        errors.NotASequenceError,
        "t_list: expected a sequence of tensors, got a str; put the tensors",
    ),
    "an unknown scaler": (
        lambda k: k.ls.AutomaticLossScaler("Backof"),
        errors.UnknownNameError,
        r"got 'Backof'; did you mean 'Backoff'\?",
    ),
    "an argument of no scaler": (
        lambda k: k.ls.AutomaticLossScaler("Backoff", {"foo": 1}),
        errors.UnknownNameError,
        "got 'foo'",
    ),
    "an argument of LARC": (
        lambda k: k.ls.post_process_gradients(*clipped(k, [], 0.1, None, {"foo": 1})),
        errors.LockstepError,
        "larc",
    ),
    "an unknown summary": (
        lambda k: k.ls.post_process_gradients(
            *clipped(k, ["gradient"], 0.1, None, None)
        ),
        errors.UnknownNameError,
        r"got 'gradient'; did you mean 'gradients'\?",
    ),
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
    "a rate below 0": (
        lambda k: k.ls.NovoGrad(*k.first(k.variable()), -1.0),
        errors.OutOfRangeError,
        "learning_rate: expected .*, got -1.0",
    ),
}
"""Calls that are wrong by themselves."""

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
    **AT_ONCE,
}
"""Name -> (call, what it raises, the words of its sentence)."""
