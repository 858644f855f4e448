"""The errors that only the Keras 3 backend raises, and its slot names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lockstep.errors import (
    DtypeError,
    LockstepError,
    MalformedPairsError,
    MissingFrameworkError,
    Refusal,
    UnknownNameError,
    UnsupportedError,
    sentence,
)

__all__ = [
    "ACCUMULATOR",
    "AVERAGE",
    "LossNotCallableError",
    "other_state",
    "scale_shadowed",
    "tf_slot_name",
]

ACCUMULATOR = "gradient_accumulator"
"""Keras' slot name for the gradient accumulated between two updates."""

AVERAGE = "average"
"""Keras' slot name for the moving average of a variable's values."""

SLOT_NAMES: Mapping[str, Mapping[str, str]] = {
    "Adam": {"momentum": "m", "velocity": "v", "velocity_hat": "vhat"},
    "RMSprop": {"velocity": "rms", "average_gradient": "mg"},
    "Ftrl": {"accumulator": "accum"},
}
"""Keras class -> Keras slot name -> TensorFlow 1's slot name, where they differ."""


class LossNotCallableError(LockstepError, RuntimeError):
    """A loss is a tensor, and no gradient tape recorded its computation."""


def tf_slot_name(classes: Iterable[str], name: str) -> str:
    """Return TensorFlow 1's name for Keras' slot ``name``.

    ``classes``: the names of the optimizer's class and its base classes.
    """
    for class_name in classes:
        if class_name in SLOT_NAMES:
            return SLOT_NAMES[class_name].get(name, name)
    return name


def scale_shadowed(owner: str) -> str:
    """Return the warning that Keras' loss scaling wraps a wrapper that scales.

    Under ``mixed_float16``, ``compile`` wraps any optimizer in a ``LossScaleOptimizer``
    that is none itself.
    """
    expected = "no loss scaling of Keras around a wrapper that scales"
    remedy = (
        "pass auto_scale_loss=False to compile, or let the wrapper that scales be the "
        "outermost one"
    )
    got = "a LossScaleOptimizer, with which it has no effect"
    return sentence(owner, expected, got, remedy)


def other_state(owner: str, count: int, found: int, is_built: bool) -> str:
    """Return the warning that a file has the state of another wrapper.

    A wrapper that is not built yet may lack variables, such as masters.
    """
    expected = f"a file with the {count} variables of this wrapper"
    got = f"{found} that do not fit, which are not loaded"
    remedy = "load into the stack that was saved, with the same kind of loss scale"
    remedy = remedy if is_built else f"call build before, and {remedy}"
    return sentence(f"{owner}.load_own_variables", expected, got, remedy)


OTHER_BACKEND = Refusal(
    MissingFrameworkError,
    "lockstep.keras3: expected Keras on its TensorFlow back end, got {found}; "
    "set KERAS_BACKEND=tensorflow before Keras is imported.",
)
FIXED_RATE = Refusal(
    UnsupportedError,
    "{owner}: optimizer: expected an optimizer whose learning_rate is a number, "
    "got {got:a} with a schedule; leave its schedule to learning_rate_decay_fn.",
)
NO_VARIABLES = Refusal(
    UnsupportedError,
    "{owner}: expected var_list, because the optimizer is not built yet, got None; "
    "pass the variables, or call build(variables) first.",
)
NOT_A_GRADIENT = Refusal(
    MalformedPairsError,
    "{owner}: expected a tensor, tf.IndexedSlices or None for {name!r}, got {got}; "
    "convert it with keras.ops.convert_to_tensor.",
)
UNKNOWN_VARIABLE = Refusal(
    UnknownNameError,
    "{owner}: expected variables that the optimizer was built with, "
    "got another, {name!r}; build it with all of them first, or make a new optimizer.",
)
WRONG_COUNT = Refusal(
    MalformedPairsError,
    "{owner}: expected {expected} gradients, one a variable, got {got}; "
    "pass None for a variable without a gradient.",
)
NOT_A_COUNTER = Refusal(
    DtypeError,
    "{owner}: expected global_step to be None or an integer variable, got {got}; "
    "make one with keras.Variable(0, dtype='int64', trainable=False).",
)
REPLICAS_APART = Refusal(
    UnsupportedError,
    "{owner}: expected replicas of one process that XLA does not compile, "
    "got {count} others; use MirroredStrategy, and compile(..., jit_compile=False).",
)
NO_CONFIG = Refusal(
    UnsupportedError,
    "{owner}.from_config: expected {argument!r}, got none; "
    "pass what get_config() returned.",
)
SCALE_INSIDE = Refusal(
    UnsupportedError,
    "{owner}: expected an optimizer whose loss Keras does not scale, got {got}; "
    "{remedy}.",
)
SEVERAL_OPTIMIZERS = Refusal(
    UnsupportedError,
    "{owner}: expected an optimizer that updates all variables, got {got}; {remedy}.",
)
