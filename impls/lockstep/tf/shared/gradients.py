"""Gradients as tensors: checks, sums of rows, zero and finite tests, casts, replicas.

Everything here has no state of its own. :mod:`lockstep.keras3` uses it, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from lockstep.errors import (
    DtypeError,
    MalformedPairsError,
    NoGradientsError,
    ShapeError,
    UnsupportedError,
)
from lockstep.interface import StepReport

Values = tf.Tensor | tf.IndexedSlices
Gradient = Values | None
Pairs = Sequence[tuple[Gradient, Any]]

HALF = (tf.float16, tf.bfloat16)
LARGEST = {tf.float16: 65504.0, tf.bfloat16: (2 - 2.0**-7) * 2.0**127}
INVERTIBLE = 2.0**126
"""The reciprocal of a larger float32 is subnormal; kernels flush it to zero."""
MODEL = "_lockstep_model"
"""The attribute of a master, or of AGN's shared variable, with the model's variable."""
GLIMPSE = 64
"""The number of elements to test first; nearly always one of them is nonzero."""

# -- checks ----------------------------------------------------------------------------


def as_variable(variable: Any) -> Any:
    """Return the ``tf.Variable`` of a ``keras.Variable`` or of a ``variable.ref()``."""
    if hasattr(variable, "deref"):
        variable = variable.deref()
    value = getattr(variable, "value", None)
    return value if isinstance(value, tf.Variable) else variable


def key_of(variable: Any) -> Any:
    """Return a dictionary key for a variable; copies of a mirrored one share it."""
    value = as_variable(variable)
    if not isinstance(value, tf.distribute.DistributedValues):
        handle = getattr(value, "handle", None)
        container = getattr(handle, "_distributed_container", None)
        value = value if container is None else container()
    return value.ref()


def name_of(variable: Any) -> str:
    """Return a variable's path or name; a master has that of the model's variable."""
    variable = variable.deref() if hasattr(variable, "deref") else variable
    variable = getattr(variable, MODEL, variable)
    name = getattr(variable, "path", None) or getattr(variable, "name", variable)
    return str(name).removesuffix(":0")


def listed_pairs(grads_and_vars: Any, owner: str) -> list[tuple[Any, Any]]:
    """Return (gradient, variable) pairs as a list, which may be empty."""
    got = None if isinstance(grads_and_vars, Iterable) else f"{grads_and_vars!r:.80}"
    entries = list(grads_and_vars) if got is None else []
    for position, entry in enumerate(entries):
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            got = f"{type(entry).__name__} at position {position}"
    if got is not None:
        raise MalformedPairsError(
            f"{owner}: expected an iterable of (gradient, variable) pairs, got {got}; "
            "pass a list such as [(gradient, variable), ...]."
        )
    return [(gradient, variable) for gradient, variable in entries]


def as_pairs(grads_and_vars: Any, owner: str) -> list[tuple[Any, Any]]:
    """Return (gradient, variable) pairs as a list; raise if there is none."""
    pairs = listed_pairs(grads_and_vars, owner)
    if not pairs:
        raise NoGradientsError(
            f"{owner}: expected at least one (gradient, variable) pair, got an empty "
            "list; pass what compute_gradients returned."
        )
    return pairs


def as_gradient(gradient: Any, variable: Any, owner: str) -> Gradient:
    """Return None, tensors and slices as they are; convert arrays and numbers."""
    if gradient is None or isinstance(gradient, tf.IndexedSlices):
        return gradient
    try:
        return tf.convert_to_tensor(gradient)
    except (TypeError, ValueError) as error:
        raise MalformedPairsError(
            f"{owner}: expected a tensor, tf.IndexedSlices or None for "
            f"{name_of(variable)!r}, got "
            f"{type(gradient).__name__}; convert it with tf.convert_to_tensor."
        ) from error


def require_variable(owner: str, key: Any, kind: str = "tf.Variable") -> tf.Variable:
    """Return the variable of a pair; raise if there is another object."""
    variable = as_variable(key)
    if not isinstance(variable, tf.Variable):
        raise MalformedPairsError(
            f"{owner}: expected pairs (gradient, {kind}), got {type(key).__name__}; put"
            " the gradient first and the variable second."
        )
    return variable


def as_counter(
    global_step: Any, owner: str, any_dtype: bool = False
) -> tf.Variable | None:
    """Return the variable that counts steps, or None; raise if it cannot count."""
    if global_step is None:
        return None
    variable = as_variable(global_step)
    is_variable = isinstance(variable, tf.Variable)
    fine = is_variable and (any_dtype or variable.dtype.base_dtype.is_integer)
    if not fine or not variable.shape.is_compatible_with([]):
        raise DtypeError(
            f"{owner}: global_step: expected a 0-d variable of integers, or None, got "
            f"{global_step!r:.80}; make one with tf.Variable(0, dtype=tf.int64)."
        )
    return variable


def require_gradients(owner: str, gradients: Iterable[Any], variables: Any) -> None:
    """Raise if every gradient is absent."""
    if all(gradient is None for gradient in gradients):
        raise NoGradientsError(
            f"{owner}: expected a gradient for at least one variable, got None for "
            f"every one of {', '.join(map(name_of, variables))}; check that the loss "
            "depends on these variables."
        )


def extended_report(
    inner: Any, gradients: Sequence[Any], variables: Sequence[Any], ending: str
) -> StepReport:
    """Return the report of an eager step: that of the wrapped optimizer, an ending."""
    report = getattr(inner, "last_step", None)
    if report is None:
        pairs = zip(gradients, variables, strict=True)
        absent = tuple(name_of(v) for g, v in pairs if g is None)
        reason = f"of {len(variables)} gradients {len(absent)} absent"
        reason = reason if absent else "every gradient was present"
        report = StepReport(len(absent) < len(variables), reason, absent)
    return report._replace(reason=f"{report.reason}; {ending}")


def multitask_report(
    gradients: Sequence[Any], variables: Sequence[Any], zero: Sequence[Any], bad: int
) -> StepReport:
    """Return the report of an eager step that skips all-zero gradients.

    ``zero``: whether each gradient is all zero; ``bad``: how many are not finite.
    """
    absent = [gradient is None for gradient in gradients]
    both = zip(variables, map(any, zip(absent, zero, strict=True)), strict=True)
    skipped = tuple(name_of(variable) for variable, is_skipped in both if is_skipped)
    counts = {"all zero": sum(zero), "absent": sum(absent), "not finite": bad}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    reason = "every gradient had a nonzero element"
    if parts:
        reason = f"of {len(variables)} gradients {', '.join(parts)}"
    return StepReport(len(skipped) < len(variables), reason, skipped)


def check_like(owner: str, pairs: Pairs, takes_wide: bool = False) -> None:
    """Raise unless gradients match their variables' shapes and dtypes."""
    check_shapes(owner, pairs)
    check_dtypes(owner, pairs, takes_wide)


def check_dtypes(owner: str, pairs: Pairs, takes_wide: bool = False) -> None:
    """Raise unless gradients have their variables' dtypes, or wide ones are fine."""
    for gradient, variable in pairs:
        if gradient is None:
            continue
        got, expected = gradient.dtype, as_variable(variable).dtype.base_dtype
        is_wide = takes_wide and got == tf.float32 and expected in HALF
        if got != expected and not is_wide:
            raise DtypeError(
                f"{owner}: expected a gradient of dtype {expected.name} for "
                f"{name_of(variable)!r}, got {got.name}; cast the gradient to the "
                "variable's dtype."
            )


def check_shapes(owner: str, pairs: Pairs) -> None:
    """Raise unless gradients, or their rows, have their variables' known shapes."""
    for gradient, variable in pairs:
        if gradient is None:
            continue
        if isinstance(gradient, tf.IndexedSlices):
            # Their own shape may be a list, or unknown.
            shape, expected = gradient.values.shape[1:], as_variable(variable).shape[1:]
        else:
            shape, expected = gradient.shape, as_variable(variable).shape
        if not shape.is_compatible_with(expected):
            raise ShapeError(
                f"{owner}: expected a gradient of shape {list(expected)} for "
                f"{name_of(variable)!r}, got {list(shape)}; pass the gradient of this "
                "variable."
            )


def require_floats(
    owner: str, gradients: Iterable[Gradient], integers: bool = False
) -> list[Values]:
    """Return the gradients that are not None; raise for complex ones and integers."""
    present = [gradient for gradient in gradients if gradient is not None]
    for gradient in present:
        dtype = gradient.dtype
        if "float" not in dtype.name and not (integers and dtype.is_integer):
            raise DtypeError(
                f"{owner}: expected real floating-point gradients, got {dtype.name}; "
                "cast them first."
            )
    return present


# -- values ----------------------------------------------------------------------------


def sum_duplicates(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Add up rows with the same index, in the order of the first occurrences."""
    indices, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def summed_values(gradient: Values) -> tf.Tensor:
    """Return the elements of a gradient, with duplicate rows summed."""
    if isinstance(gradient, tf.IndexedSlices):
        return sum_duplicates(gradient).values
    return gradient


def densify(gradient: Gradient, like: Any) -> tf.Tensor:
    """Return a gradient as a tensor with the shape of ``like``; an absent one is 0."""
    if gradient is None:
        return tf.zeros(like.shape, tf.as_dtype(like.dtype).base_dtype)
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows = like.shape[0]
    rows = tf.shape(like)[0] if rows is None else rows
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)


def with_values(gradient: Values, values: tf.Tensor) -> Values:
    """Return a gradient with these values; a sparse one keeps its indices."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def values_of(gradient: Values) -> tf.Tensor:
    """Return a tensor, or the rows of slices."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def widen(gradient: Values) -> Values:
    """Return a gradient, or the rows of a sparse one, in float32."""
    return with_values(gradient, tf.cast(values_of(gradient), tf.float32))


def in_float32(gradient: Gradient) -> Gradient:
    """Return a half-precision gradient in float32; return others unchanged."""
    if gradient is None or gradient.dtype not in HALF:
        return gradient
    return widen(gradient)


def times(gradient: Values, factor: float | tf.Tensor) -> Values:
    """Return a gradient times ``factor``, which is rounded to its dtype first."""
    values = values_of(gradient)
    return with_values(gradient, values * as_tensor(factor, values.dtype))


def as_tensor(number: float | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Round a number to ``dtype`` once; cast a tensor."""
    if tf.is_tensor(number):
        return tf.cast(number, dtype)
    return tf.constant(number, dtype)


def divided(values: Sequence[tf.Tensor], scale: float | tf.Tensor) -> list[tf.Tensor]:
    """Return v (1/s) of each value, rounded once to its dtype; v / s if s > 2^126."""
    reciprocal = 1.0 / scale

    def over(value: tf.Tensor) -> tf.Tensor:
        wide = tf.float64 if value.dtype == tf.float64 else tf.float32
        return tf.cast(tf.cast(value, wide) / tf.cast(scale, wide), value.dtype)

    quotients = tf.cond(
        tf.convert_to_tensor(scale > INVERTIBLE),
        lambda: [over(value) for value in values],
        lambda: [times_reciprocal(value, reciprocal) for value in values],
    )
    return list(tf.nest.flatten(quotients))


def times_reciprocal(values: tf.Tensor, reciprocal: tf.Tensor) -> tf.Tensor:
    """Return values times the float32 reciprocal, rounded once to their dtype."""
    wide = tf.float64 if values.dtype == tf.float64 else tf.float32
    product = tf.cast(values, wide) * tf.cast(reciprocal, wide)
    return tf.cast(product, values.dtype)


# -- tests -----------------------------------------------------------------------------


def is_all_zero(gradient: Values) -> tf.Tensor:
    """Whether all elements of ``gradient`` are 0, duplicate rows summed: bool, 0-d.

    TensorFlow's kernels flush float32 and float64 subnormals to zero, so these count as
    zero, in the default mode too. float16 subnormals do not.
    """
    values = summed_values(gradient)
    return tf.reduce_all(tf.equal(values, tf.zeros((), values.dtype)))


def all_zero_flags(gradients: Sequence[Values]) -> tf.Tensor:
    """Apply :func:`is_all_zero` to n gradients: bool, [n]."""
    return tf.stack([is_all_zero(gradient) for gradient in gradients])


def some_may_be_zero(gradients: Sequence[Values]) -> tf.Tensor:
    """Return whether some gradients may be all zero, from a few elements: bool, 0-d."""
    squares = [square_sum(gradient, GLIMPSE) for gradient in gradients]
    return tf.reduce_any(tf.equal(tf.stack(squares), 0))


def square_sum(gradient: Values, count: int | None = None) -> tf.Tensor:
    """Return half the sum of squares of all elements, or of the first: float32, 0-d."""
    values = summed_values(gradient)
    if values.dtype.is_complex:
        values = tf.bitcast(values, values.dtype.real_dtype)
    if count is not None:
        values = tf.reshape(values, [-1])[:count]
    return tf.cast(tf.nn.l2_loss(values), tf.float32)


def finite_flags(gradients: Sequence[Values]) -> tf.Tensor:
    """Return whether each of n gradients is finite, rows summed first: bool, [n]."""
    if not gradients:
        return tf.ones([0], tf.bool)
    values = map(summed_values, gradients)
    return tf.stack([tf.reduce_all(tf.math.is_finite(value)) for value in values])


# -- half precision --------------------------------------------------------------------


def saturating_cast(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Round float32 to ``dtype``, clamped to its largest number; NaN stays."""
    largest = tf.constant(LARGEST[dtype], values.dtype)
    return tf.cast(tf.clip_by_value(values, -largest, largest), dtype)


def follow(master: tf.Tensor, model: tf.Tensor) -> tf.Tensor:
    """Return a master in float32, with the elements of ``model`` that were changed."""
    rounded = saturating_cast(master, model.dtype)
    both_nan = tf.logical_and(tf.math.is_nan(rounded), tf.math.is_nan(model))
    same = tf.logical_or(tf.equal(rounded, model), both_nan)
    return tf.where(same, master, tf.cast(model, tf.float32))


# -- replicas --------------------------------------------------------------------------


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Exit the current strategy, if there is one, within a ``with`` block.

    Inside a strategy, TensorFlow's optimizers sum the gradients over all replicas, and
    Keras' optimizers need a replica context. There is no public way to exit.
    """
    if not tf.distribute.has_strategy():
        yield
        return
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()


def replica_number() -> int:
    """Return the number of the calling replica; 0 outside of a strategy."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return 0
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def is_first_replica() -> bool:
    """Whether the caller is the first replica, which prints and warns for all."""
    return replica_number() == 0


def own_copy(variable: Any) -> Any:
    """Return the calling replica's copy of a variable."""
    context = tf.distribute.get_replica_context()
    if context is None or not isinstance(variable, tf.distribute.DistributedValues):
        return variable
    # The copies of one process, whose replicas have consecutive numbers.
    copies = context.strategy.experimental_local_results(variable)
    return copies[replica_number() % len(copies)]


def refuse_parameter_servers(owner: str) -> None:
    """Raise under a ``ParameterServerStrategy``: all workers would train one copy."""
    if isinstance(tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy):
        raise UnsupportedError(
            f"{owner}: expected variables of the worker's own, got a "
            "ParameterServerStrategy, whose variables all workers share; write the "
            "round as a closure, as the page on AGN does, or use a center on Ray."
        )
