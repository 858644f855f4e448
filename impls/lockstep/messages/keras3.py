"""The words that only the Keras 3 backend needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lockstep.messages.errors import (
    DtypeError,
    LockstepError,
    MalformedPairsError,
    MissingFrameworkError,
    NotAnOptimizerError,
    OutOfRangeError,
    UnknownNameError,
    UnsupportedError,
    sentence,
)

__all__ = [
    "ACCUMULATOR",
    "AVERAGE",
    "LossNotCallableError",
    "fixed_rate",
    "no_config",
    "no_variables",
    "not_a_counter",
    "not_a_gradient",
    "not_a_variable",
    "not_keras",
    "other_backend",
    "replicas_apart",
    "scale_inside",
    "scale_shadowed",
    "tf_slot_name",
    "unknown_variable",
    "wrong_count",
    "zero_rate",
]

ACCUMULATOR = "gradient_accumulator"
"""What Keras calls the sum of the gradients of the steps between two updates."""

AVERAGE = "average"
"""What Keras calls the moving average of a variable's own values."""

SLOT_NAMES: Mapping[str, Mapping[str, str]] = {
    "Adam": {"momentum": "m", "velocity": "v", "velocity_hat": "vhat"},
    "RMSprop": {"velocity": "rms", "average_gradient": "mg"},
    "Ftrl": {"accumulator": "accum"},
}
"""Class of Keras -> its name of a slot -> TensorFlow 1's, where they differ."""


class LossNotCallableError(LockstepError, RuntimeError):
    """A loss is a tensor where nothing recorded how it was computed."""


def tf_slot_name(classes: Iterable[str], name: str) -> str:
    """Return TensorFlow 1's name of the slot that Keras calls ``name``.

    ``classes`` are the names of the optimizer's class and of its bases.
    """
    for class_name in classes:
        if class_name in SLOT_NAMES:
            return SLOT_NAMES[class_name].get(name, name)
    return name


def other_backend(found: str) -> MissingFrameworkError:
    """Build the error for Keras that runs on something else than TensorFlow."""
    expected = "Keras on its TensorFlow back end"
    remedy = "set KERAS_BACKEND=tensorflow before Keras is imported"
    return MissingFrameworkError(sentence("lockstep.keras3", expected, found, remedy))


def fixed_rate(owner: str, got: str) -> UnsupportedError:
    """Build the error for an optimizer whose rate is a schedule of its own."""
    expected = "an optimizer whose learning_rate is a number"
    remedy = "leave its schedule to learning_rate_decay_fn"
    return UnsupportedError(
        sentence(f"{owner}: optimizer", expected, f"a {got} with a schedule", remedy)
    )


def not_keras(owner: str, opt: object) -> NotAnOptimizerError:
    """Build the error for an object that cannot be wrapped."""
    got, remedy = type(opt).__name__, "pass an optimizer of keras.optimizers"
    if isinstance(opt, type):
        got, remedy = f"the class {opt.__name__}", "pass an instance"
    return NotAnOptimizerError(
        sentence(owner, "a keras.optimizers.Optimizer", got, remedy)
    )


def no_variables(owner: str) -> UnsupportedError:
    """Build the error for ``var_list=None`` before anything is known."""
    expected = "var_list, for the optimizer is not built yet"
    remedy = "pass the variables, or call build(variables) first"
    return UnsupportedError(sentence(owner, expected, "None", remedy))


def not_a_variable(owner: str, got: str) -> MalformedPairsError:
    """Build the error for a pair whose second entry is no variable."""
    expected = "pairs (gradient, keras.Variable)"
    remedy = "put the gradient first and the variable second"
    return MalformedPairsError(sentence(owner, expected, got, remedy))


def not_a_gradient(owner: str, name: str, got: str) -> MalformedPairsError:
    """Build the error for a pair whose first entry is no gradient."""
    expected = f"a tensor, tf.IndexedSlices or None for {name!r}"
    remedy = "convert it with keras.ops.convert_to_tensor"
    return MalformedPairsError(sentence(owner, expected, got, remedy))


def unknown_variable(owner: str, name: str) -> UnknownNameError:
    """Build the error for a variable that the optimizer was not built with."""
    expected = "variables that the optimizer was built with"
    remedy = "build it with all of them first, or make a new optimizer"
    return UnknownNameError(sentence(owner, expected, f"another, {name!r}", remedy))


def wrong_count(owner: str, expected: int, got: int) -> MalformedPairsError:
    """Build the error for gradients that are not one a variable."""
    remedy = "pass None for a variable without a gradient"
    wanted = f"{expected} gradients, one a variable"
    return MalformedPairsError(sentence(owner, wanted, str(got), remedy))


def not_a_counter(owner: str, got: str) -> DtypeError:
    """Build the error for a ``global_step`` that cannot count."""
    expected = "global_step to be None or an integer variable"
    remedy = "make one with keras.Variable(0, dtype='int64', trainable=False)"
    return DtypeError(sentence(owner, expected, got, remedy))


def replicas_apart(owner: str, count: int) -> UnsupportedError:
    """Build the error for replicas that cannot meet to decide about a step."""
    expected = "replicas of one process that XLA does not compile"
    remedy = "use MirroredStrategy, and compile(..., jit_compile=False)"
    return UnsupportedError(sentence(owner, expected, f"{count} others", remedy))


def no_config(owner: str, argument: str) -> UnsupportedError:
    """Build the error for a configuration without the wrapped optimizer."""
    remedy = "pass what get_config() returned"
    subject = f"{owner}.from_config"
    return UnsupportedError(sentence(subject, repr(argument), "none", remedy))


def scale_inside(owner: str, got: str, remedy: str = "") -> UnsupportedError:
    """Build the error for Keras' loss scaling inside of a wrapper.

    Under ``mixed_float16`` ``compile`` asks the outermost optimizer alone whether the
    loss is scaled, and would scale it a second time.
    """
    expected = "an optimizer whose loss Keras does not scale"
    remedy = remedy or f"put it outside: LossScaleOptimizer({owner}(optimizer))"
    return UnsupportedError(sentence(owner, expected, got, remedy))


def scale_shadowed(owner: str) -> str:
    """Return the warning of Keras' loss scaling around a loss scale, which it replaces.

    Under ``mixed_float16`` ``compile`` puts one around an optimizer that is none.
    """
    expected = "no loss scaling of Keras around a wrapper that scales"
    remedy = (
        "pass auto_scale_loss=False to compile, or let the wrapper that scales be the "
        "outermost one"
    )
    got = "a LossScaleOptimizer, with which it has no effect"
    return sentence(owner, expected, got, remedy)


def zero_rate(owner: str) -> OutOfRangeError:
    """Strict: rate 0, where the original fails.

    # Quirk: docs/differences.md#ftrl-zero-rate
    """
    remedy = "the original fails at rate 0; leave strict off to skip the step"
    return OutOfRangeError(sentence(owner, "learning_rate > 0", "0", remedy))
