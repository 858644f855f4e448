"""The pipeline from a gradient to an update: its stages and their order.

Each wrapper performs some of the stages, ``optimize_loss`` others. Wrappers can be
stacked freely as long as the stages keep the order below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lockstep.errors import NotAnOptimizerError, with_article

STAGES = (
    "unscale",  # Gradients of a scaled loss are divided by the scale, once.
    "accumulate",  # The shares of iter_size micro-batches are added up.
    "reduce",  # Gradients are averaged over the ranks.
    "zero filter",  # A gradient without a nonzero element becomes absent.
    "finite check",  # One gradient that is not finite skips the whole step.
    "norm",  # The global norm of what is left is taken, in float32.
    "clip",  # All gradients are multiplied by one factor, for their norm.
    "larc",  # Each gradient is multiplied by a factor of its own, for LARC.
    "update",  # The base optimizer moves the variables and its slots.
    "row clip",  # Rows of the variables that have become too long are cut.
)
"""The stages in order. A pipeline cannot have both "clip" and "larc"."""

WRAPPERS: Mapping[str, tuple[str, ...]] = {
    "AGNOptimizer": (),
    "MixedPrecisionLossScaleOptimizer": ("unscale", "finite check"),
    "MixedPrecisionOptimizerWrapper": ("unscale", "finite check"),
    "MultitaskOptimizerWrapper": ("zero filter",),
    "VariableClippingOptimizer": ("row clip",),
}
"""Wrapper -> the stages of ``STAGES`` that it performs. One with a
``clip_norm`` also performs "norm" and "clip"."""

PERFORMED: Mapping[str, tuple[str, ...]] = {
    **WRAPPERS,
    "LossScaleOptimizer": ("unscale", "finite check"),  # That of Keras.
}
"""Class of a wrapper -> its stages."""

METHODS = (("apply_gradients",), ("step", "param_groups"), ("inner_optimizer",))
"""Attributes of an optimizer of TF or Keras, of one of torch, and of a wrapper."""


def pipeline_of(optimizer: Any) -> tuple[str, ...]:
    """Return the active stages of a stack of wrappers, in order.

    Args:
        optimizer: an optimizer or a wrapper of any backend, or the result of
            ``optimize_loss``.

    Raises:
        NotAnOptimizerError: a TypeError; anything else, such as a class.

    Example:
        >>> from lockstep import reference as ls
        >>> sgd = ls.GradientDescentOptimizer(0.1)
        >>> scaled = ls.MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
        >>> pipeline_of(ls.MultitaskOptimizerWrapper(scaled))
        ('unscale', 'zero filter', 'finite check', 'update')
    """
    # The tensor that optimize_loss returns in a graph has a reference to its step.
    step = getattr(optimizer, "__dict__", {}).get("training_step", optimizer)
    if "pipeline" in dir(type(step)):
        return tuple(step.pipeline)
    steps = any(all(hasattr(step, name) for name in names) for names in METHODS)
    if isinstance(optimizer, type) or not steps:
        got = with_article(type(optimizer).__name__)
        if isinstance(optimizer, type):
            got = f"the class {optimizer.__name__}"
        raise NotAnOptimizerError(
            "pipeline_of: expected an optimizer, or what optimize_loss returned, got "
            f"{got}; pass the object that takes the steps."
        )
    return in_order([*stages_of(step), "update"])


def stages_of(optimizer: Any) -> Iterator[str]:
    """Yield the stages that the wrappers of a stack perform."""
    for layer in layers_of(optimizer):
        for base in type(layer).__mro__:
            if base.__name__ in PERFORMED:
                yield from PERFORMED[base.__name__]
        if getattr(layer, "clip_norm", None) is not None:
            yield from ("norm", "clip")


def layers_of(optimizer: Any) -> Iterator[Any]:
    """Yield an optimizer, the optimizer that it wraps, and so on to the innermost."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


def base_of(optimizer: Any) -> Any:
    """Return the innermost optimizer: the one that owns the state."""
    return list(layers_of(optimizer))[-1]


def has_layer(optimizer: Any, name: str) -> bool:
    """Return whether a stack has a wrapper of this class name, or of a subclass."""
    layers = layers_of(optimizer)
    return any(cls.__name__ == name for layer in layers for cls in type(layer).__mro__)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return these stage names without duplicates, in the order of the pipeline."""
    active = set(names)
    return tuple(stage for stage in STAGES if stage in active)


def strictly_ordered(pipeline: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stages in the original's order: the finite check after clipping.

    Quirk ``optimize_loss_order``.
    """
    late = ("zero filter", "finite check")
    place = pipeline.index("update")
    before = [name for name in pipeline[:place] if name not in late]
    return (*before, *(n for n in late if n in pipeline), *pipeline[place:])
