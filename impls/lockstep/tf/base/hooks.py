"""The apply hooks of a v1 optimizer, and conditions around them.

A ``tf.compat.v1.train.Optimizer`` updates a variable by one of its hooks, which depends
on the kind of variable (reference or resource) and of gradient (dense or sparse).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from lockstep.messages import tf as words

__all__ = [
    "HOOKS",
    "base_of",
    "is_reference",
    "make_conditional",
    "require_resources",
    "routed",
    "set_apart",
    "skips_of",
    "unless",
]

HOOKS = (
    "_apply_dense",
    "_resource_apply_dense",
    "_apply_sparse_duplicate_indices",
    "_resource_apply_sparse_duplicate_indices",
)
SKIPS = "_lockstep_skips"
INNER = ("inner_optimizer", "_optimizer", "_opt")

Skip = Callable[[Any, tf.Variable], tf.Tensor]


def base_of(optimizer: tf.compat.v1.train.Optimizer) -> tf.compat.v1.train.Optimizer:
    """Return the innermost optimizer.

    Unwraps the wrappers of this package, of TensorFlow and of most projects.
    """
    for name in INNER:
        inner = vars(optimizer).get(name)
        if isinstance(inner, tf.compat.v1.train.Optimizer):
            return base_of(inner)
    return optimizer


def make_conditional(
    optimizer: tf.compat.v1.train.Optimizer, hooks: Sequence[str], skip: Skip
) -> None:
    """Make ``hooks`` do nothing if ``skip(gradient, variable)`` is true."""

    def conditional(hook: Callable[..., Any]) -> Callable[..., Any]:
        def call(gradient: Any, variable: tf.Variable, *indices: tf.Tensor) -> Any:
            return unless(
                skip(gradient, variable),
                lambda: hook(gradient, variable, *indices),
                variable,
            )

        return call

    for name in hooks:
        setattr(optimizer, name, conditional(getattr(optimizer, name)))


@contextlib.contextmanager
def routed(optimizer: tf.compat.v1.train.Optimizer, skip: Skip) -> Iterator[None]:
    """Make the hooks of ``optimizer`` conditional within the ``with`` block."""
    own = vars(optimizer)
    replaced = {name: own[name] for name in (*HOOKS, SKIPS) if name in own}
    make_conditional(optimizer, HOOKS, skip)
    own[SKIPS] = (*skips_of(optimizer), skip)
    try:
        yield
    finally:
        for name in (*HOOKS, SKIPS):
            del own[name]
        own.update(replaced)


def skips_of(optimizer: tf.compat.v1.train.Optimizer) -> tuple[Skip, ...]:
    """Return the tests of the :func:`routed` blocks around the caller.

    A wrapper that changes variables without the hooks of ``optimizer``, the innermost
    one, must skip a variable if any of these tests is true.
    """
    return vars(optimizer).get(SKIPS, ())


def unless(
    skip: tf.Tensor, update: Callable[[], Any], variable: tf.Variable
) -> tf.Operation | None:
    """Run ``update()`` unless ``skip`` is true; without a condition if it is known."""
    known = tf.get_static_value(skip)
    if known is not None:
        return tf.no_op() if known else update()
    require_resources([variable])

    def run() -> tf.Operation | None:
        with tf.control_dependencies([update()]):
            return tf.no_op()

    return tf.cond(skip, tf.no_op, run)


def set_apart(build: Callable[[], Any]) -> Callable[[], tf.Operation]:
    """Move a branch that ``build`` creates and that rarely runs into a function.

    TensorFlow visits every operation of a branch that is not taken. With conditions
    for 400 variables that is a third of an Adam step. A call of a function is a single
    operation.
    """
    if not tf.compat.v1.control_flow_v2_enabled():
        return build

    @tf.function(autograph=False, experimental_attributes={"_noinline": True})
    def done() -> tf.Tensor:
        with tf.control_dependencies([build()]):
            return tf.constant(True)

    return lambda: tf.group(done())


def is_reference(variable: tf.Variable) -> bool:
    """Whether ``variable`` is a reference variable, TensorFlow 1's default kind."""
    return variable.dtype != variable.dtype.base_dtype


def require_resources(variables: Iterable[tf.Variable]) -> None:
    """Raise if an update under a condition is impossible for some variables.

    Raises:
        UnsupportedError: a reference variable under control flow v2, whose conditions
            are functions. Functions cannot capture reference variables.
    """
    if not tf.compat.v1.control_flow_v2_enabled():
        return
    for variable in variables:
        if is_reference(variable):
            raise words.REFERENCE_VARIABLE.error(name=variable.op.name)
