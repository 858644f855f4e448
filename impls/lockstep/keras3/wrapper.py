"""The base of all wrappers: a Keras optimizer around another one, and its slots.

Keras keeps slots in lists with different names in different optimizers. Optimizers
create them by the same public method, so that method is observed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep import errors
from lockstep.interface import NO_EAGER_STEP, NO_GRADIENTS, StepReport
from lockstep.keras3 import gradients as gradients_of
from lockstep.keras3.gradients import Gradient, Pairs, StateList, TrainV1
from lockstep.pipeline import base_of, layers_of
from lockstep.tf.shared.gradients import extended_report, key_of

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

# -- slots -----------------------------------------------------------------------------


class Slots:
    """The slots of variables by TensorFlow 1's names; a master shares its own."""

    def __init__(self) -> None:
        self.by_variable: dict[Any, dict[str, Any]] = {}
        self.masters: dict[Any, Any] = {}
        self.models: dict[Any, Any] = {}

    def add(self, variable: Any, name: str, slot: Any) -> None:
        """Add a slot that was created for ``variable``."""
        self.by_variable.setdefault(key_of(variable), {})[name] = slot

    def of(self, variable: Any) -> dict[str, Any]:
        """Return the slots of ``variable`` by name; an empty dict if it has none."""
        return self.by_variable.get(key_of(variable), {})

    def add_master(self, variable: Any, master: Any) -> None:
        """Add the master of ``variable``; both get the master's slots."""
        self.masters[key_of(variable)] = master
        self.models[key_of(master)] = variable
        slots = self.of(master)
        self.by_variable[key_of(variable)] = {"master": master, **slots}

    def master_of(self, variable: Any) -> Any:
        """Return the float32 master of ``variable``, or itself if it has none."""
        return self.masters.get(key_of(variable), variable)

    def model_of(self, variable: Any) -> Any:
        """Return the variable of a master; return another variable unchanged."""
        return self.models.get(key_of(variable), variable)

    def names(self) -> list[str]:
        """Return the distinct names of all slots."""
        return list(dict.fromkeys(n for s in self.by_variable.values() for n in s))


def tf_slot_name(optimizer: Any, name: str | None) -> str:
    """Return TensorFlow 1's name for the slot that ``optimizer`` calls ``name``."""
    name = name or "var"
    for cls in type(optimizer).__mro__:
        if cls.__name__ in SLOT_NAMES:
            return SLOT_NAMES[cls.__name__].get(name, name)
    return name


def build_observed(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[Any]
) -> Slots:
    """Build ``optimizer`` for ``variables``; return the slots that it creates."""
    if isinstance(optimizer, Wrapper):
        optimizer.build(variables)
        return optimizer._slots
    base = base_of(optimizer)
    slots = Slots()
    if not base.built:
        with observed(base, slots):
            optimizer.build(variables)
        return slots
    if not optimizer.built:
        optimizer.build(variables)
    # One that is built already is not changed: the n-th variable of a copy is its n-th.
    twin = type(base).from_config(base.get_config())
    twins = Slots()
    with observed(twin, twins):
        twin.build(base._trainable_variables)
    own = {id(v): mine for v, mine in zip(twin.variables, base.variables, strict=True)}
    for key, named in twins.by_variable.items():
        slots.by_variable[key] = {name: own[id(slot)] for name, slot in named.items()}
    return slots


@contextlib.contextmanager
def observed(optimizer: keras.optimizers.Optimizer, slots: Slots) -> Iterator[None]:
    """Add the variables that ``optimizer`` creates for others to ``slots``."""
    make = optimizer.add_variable_from_reference

    def make_and_add(reference_variable: Any, name: Any = None, *a: Any, **k: Any):
        slot = make(reference_variable, name, *a, **k)
        slots.add(reference_variable, tf_slot_name(optimizer, name), slot)
        return slot

    # Not setattr: Keras and TensorFlow would track the attribute.
    vars(optimizer)["add_variable_from_reference"] = make_and_add
    try:
        yield
    finally:
        del vars(optimizer)["add_variable_from_reference"]
    if isinstance(optimizer, keras.optimizers.Adafactor):
        # Its means over rows and columns are created by another method.
        columns = optimizer._trainable_variables, optimizer._r, optimizer._c
        for variable, r, c in zip(*columns, strict=True):
            if len(variable.shape) >= 2 and r is not None:
                slots.add(variable, "r", r)
                slots.add(variable, "c", c)


@contextlib.contextmanager
def preserved(
    states: Sequence[Sequence[tf.Variable]], flags: Sequence[tf.Tensor] | tf.Tensor
) -> Iterator[None]:
    """Restore the k-th of ``states`` after the block if ``flags[k]`` is true."""
    # A condition around each update would not cover weight decay and constraints.
    before = [[tf.identity(part) for part in state] for state in states]
    yield
    for k, (state, old) in enumerate(zip(states, before, strict=True)):
        for part, value in zip(state, old, strict=True):
            part.assign(tf.where(flags[k], value, part))


# -- stacks ----------------------------------------------------------------------------


def require_optimizer(
    optimizer: Any,
    owner: str,
    error: type[errors.LockstepError] = errors.NotAnOptimizerError,
) -> None:
    """Raise unless this is an optimizer of Keras."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise error(
            f"{owner}: expected a keras.optimizers.Optimizer, got {optimizer!r:.80}; "
            "pass an instance."
        )


def refuse_several(optimizer: Any, owner: str, remedy: str) -> None:
    """Raise for Keras' ``MultiOptimizer``: slots and rates are those inside it."""
    base = base_of(optimizer)
    if hasattr(base, "optimizers"):
        raise errors.UnsupportedError(
            f"{owner}: expected an optimizer that updates all variables, got "
            f"{type(base).__name__}; {remedy}."
        )


def refuse_keras_scale(optimizer: Any, owner: str, remedy: str = "") -> None:
    """Raise for Keras' own loss scaling, which must be the outermost wrapper."""
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if scales and not isinstance(optimizer, Wrapper):
        remedy = remedy or f"put it outside: LossScaleOptimizer({owner}(optimizer))"
        raise errors.UnsupportedError(
            f"{owner}: expected an optimizer whose loss Keras does not scale, got "
            f"{type(optimizer).__name__}; {remedy}."
        )


def refuse_factor(optimizer: Any, owner: str) -> None:
    """Raise for ``loss_scale_factor``, by which Keras divides after our stages."""
    base = base_of(optimizer)
    factor = getattr(base, "loss_scale_factor", None)
    if factor is not None:
        raise errors.UnsupportedError(
            f"{owner}: expected an optimizer whose loss Keras does not scale, got "
            f"{type(base).__name__} with loss_scale_factor={factor}; leave "
            "loss_scale_factor out, and scale with a wrapper or not at all."
        )


# -- the wrapper -----------------------------------------------------------------------


def _live(name: str) -> property:
    """Return a property that reads and writes ``name`` of the wrapped optimizer."""

    def read(self: Wrapper) -> Any:
        return getattr(self.inner_optimizer, name)

    def write(self: Wrapper, value: Any) -> None:
        # Keras' constructor sets defaults before the wrapped optimizer is known.
        if "inner_optimizer" in vars(self):
            setattr(self.inner_optimizer, name, value)

    return property(read, write, doc=f"``{name}`` of the wrapped optimizer, live.")


class Wrapper(TrainV1, keras.optimizers.Optimizer):
    """A Keras optimizer around another one, which owns the slots.

    Learning rate, clipping, weight decay, moving averages and gradient accumulation are
    the wrapped optimizer's, and can be read and set through the wrapper. ``iterations``
    is its counter. Its other attributes can be read, but its methods are not forwarded.
    A subclass overrides :meth:`update`, :meth:`build_state` if it has variables, and
    :meth:`get_config`.

    Args:
        inner_optimizer: any Keras optimizer, or a wrapper.
        name: by default the name of the wrapped optimizer.

    Raises:
        NotAnOptimizerError: a TypeError; ``inner_optimizer`` is no Keras optimizer.
        UnsupportedError: a ValueError; ``keras.optimizers.LossScaleOptimizer``, which
            must be the outermost wrapper.
    """

    argument = "opt"
    """The constructor's name for the wrapped optimizer."""

    _refusal: type[errors.LockstepError] = errors.NotAnOptimizerError
    """The error for a wrapped object that is no optimizer."""

    sums_duplicates = True
    """Whether :meth:`update` gets sparse gradients with duplicate rows summed."""

    weight_decay = _live("weight_decay")
    clipnorm = _live("clipnorm")
    clipvalue = _live("clipvalue")
    global_clipnorm = _live("global_clipnorm")
    use_ema = _live("use_ema")
    ema_momentum = _live("ema_momentum")
    ema_overwrite_frequency = _live("ema_overwrite_frequency")
    loss_scale_factor = _live("loss_scale_factor")
    gradient_accumulation_steps = _live("gradient_accumulation_steps")
    learning_rate = _live("learning_rate")

    last_step: StepReport = NO_EAGER_STEP
    """The report of the last eager step."""

    report_class: type[StepReport] = StepReport

    _count_before_build: int | None = None
    """The number of the wrapper's own variables before ``build`` creates the others."""

    def __init__(
        self, inner_optimizer: keras.optimizers.Optimizer, name: str | None = None
    ) -> None:
        owner = type(self).__name__
        require_optimizer(inner_optimizer, owner, self._refusal)
        refuse_keras_scale(inner_optimizer, owner)
        # Not super(): some wrappers are LossScaleOptimizers, so that Keras adds none.
        name = name or inner_optimizer.name
        keras.optimizers.Optimizer.__init__(self, learning_rate=0.0, name=name)
        self.inner_optimizer = inner_optimizer
        self._iterations = base_of(self)._iterations
        # The counter is the base optimizer's, and Keras' own rate is not used, so
        # neither is state of the wrapper. A new list, because tf.train.Checkpoint
        # raises for one from which an item was removed.
        is_variable, variables = self._tracker.config["variables"]
        variables = type(variables)([])
        self._tracker.config["variables"] = is_variable, variables
        self._tracker.stored_ids["variables"].clear()
        self._track_trackable(variables, "_variables", overwrite=True)
        vars(self)["_variables"] = variables

    def __getattr__(self, name: str) -> Any:
        """Read an attribute of the wrapped optimizer, but forward none of its methods.

        A method that updates variables would update past the wrapper.
        """
        missing = f"{type(self).__name__!r} object has no attribute {name!r}"
        inner = vars(self).get("inner_optimizer")
        if inner is None or name.startswith("_") or not hasattr(inner, name):
            raise AttributeError(missing)
        value = getattr(inner, name)
        if callable(value) and not isinstance(value, StateList):
            raise AttributeError(
                f"{missing}: expected a method of the wrapper, got one of "
                f"{type(inner).__name__}, which would update past it; call "
                f"inner_optimizer.{name} if that is what you want."
            )
        return value

    @property
    def base_optimizer(self) -> keras.optimizers.Optimizer:
        """The innermost optimizer, which owns the slots and the counter."""
        return base_of(self)

    @property
    def iterations(self) -> Any:
        """The counter of the wrapped optimizer."""
        return self.inner_optimizer.iterations

    @property
    def variables(self) -> StateList:
        """The wrapper's own variables, then those of the wrapped optimizer.

        This is Keras' property and TensorFlow 1's method: ``opt.variables`` and
        ``opt.variables()`` are the same list.
        """
        return StateList([*self._variables, *self.inner_optimizer.variables])

    @property
    def _model_variables_moving_average(self) -> list[Any]:
        """The averages of ``use_ema``, which Keras' ``SwapEMAWeights`` reads."""
        return self.inner_optimizer._model_variables_moving_average

    # -- building ----------------------------------------------------------------------

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables``, here and in the wrapped optimizer."""
        if self.built:
            return
        variables = gradients_of.require_all(variables, type(self).__name__)
        vars(self)["_count_before_build"] = len(self._variables)
        slots = self.build_inner(variables)
        # Not setattr: the wrapped optimizer already tracks these.
        vars(self)["_slots"] = slots
        vars(self)["_trainable_variables"] = variables
        for k, variable in enumerate(variables):
            for known in (variable, slots.master_of(variable)):
                self._trainable_variables_indices[self._var_key(known)] = k
        self.build_state(variables)
        self.built = True

    def build_inner(self, variables: list[Any]) -> Slots:
        """Build the wrapped optimizer for ``variables``; return its slots."""
        return build_observed(self.inner_optimizer, variables)

    def build_state(self, variables: Sequence[Any]) -> None:
        """Create the wrapper's own variables; by default there are none."""

    # -- steps -------------------------------------------------------------------------

    @tf.autograph.experimental.do_not_convert
    def apply(
        self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Take a step, as called by Keras; wrong arguments change nothing.

        Args:
            grads: a gradient or None for each variable.
            trainable_variables: the variables; None: those passed to ``build``.
        """
        gradients = list(grads)
        if not gradients:
            return
        if trainable_variables is None and not self.built:
            gradients_of.refuse_unbuilt(type(self).__name__)
        if trainable_variables is None:
            trainable_variables = self._trainable_variables
        self._train(gradients, list(trainable_variables))

    def _take(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take a step outside of the strategy, on checked gradients."""
        for variable in variables:
            if self._var_key(variable) not in self._trainable_variables_indices:
                raise errors.UnknownNameError(
                    f"{type(self).__name__}: expected variables that the optimizer was "
                    f"built with, got {gradients_of.name_of(variable)!r}; build it "
                    "with all of them first, or make a new optimizer."
                )
        pairs = zip(gradients, variables, strict=True)
        prepared = [gradients_of.with_dense_shape(*pair) for pair in pairs]
        if self.sums_duplicates:
            prepared = [gradients_of.without_duplicates(g) for g in prepared]
        self.update(prepared, variables)

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the wrapper's step on checked gradients of all replicas."""
        self.inner_optimizer.apply(gradients, variables)

    def forget_report(self) -> None:
        """Reset reports of earlier steps, here and in the wrapped optimizers."""
        report = NO_GRADIENTS if tf.executing_eagerly() else NO_EAGER_STEP
        for layer in layers_of(self):
            if isinstance(layer, Wrapper):
                layer._set_report(layer.report_class(*report))

    def _set_report(self, report: StepReport) -> None:
        """Store a report; Keras' ``setattr`` would copy it without its attributes."""
        vars(self)["last_step"] = report

    def _extend_report(
        self, gradients: list[Gradient], variables: list[Any], ending: str
    ) -> None:
        """Report an eager step: what the wrapped optimizer reported, and an ending."""
        inner = self.inner_optimizer
        self._set_report(extended_report(inner, gradients, variables, ending))

    def _differentiate(self, loss: Any, variables: list[Any], grad_loss: Any) -> Pairs:
        """Differentiate a loss with the wrapped optimizer, which may scale it."""
        inner = self.inner_optimizer
        layer = inner if isinstance(inner, Wrapper) else super()
        return layer._differentiate(loss, variables, grad_loss)

    @property
    def takes_wide(self) -> bool:
        """Whether half-precision variables accept float32 gradients."""
        inner = self.inner_optimizer
        return isinstance(inner, Wrapper) and inner.takes_wide

    def scale_loss(self, loss: Any) -> Any:
        """Scale the loss, if a wrapped optimizer does so; ``fit`` calls this method."""
        return self.inner_optimizer.scale_loss(loss)

    def unscale_gradients(self, gradients: Iterable[Gradient]) -> list[Gradient]:
        """Return the gradients of a scaled loss divided by the scale.

        ``apply_gradients`` does not divide them again. Half precision is returned as
        float32; None stays None; sparse gradients stay sparse. If no wrapped optimizer
        scales the loss, the gradients are returned unchanged.
        """
        inner = self.inner_optimizer
        if isinstance(inner, Wrapper):
            return inner.unscale_gradients(gradients)
        return list(gradients)

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """After training, assign the wrapped optimizer's moving averages."""
        self.inner_optimizer.finalize_variable_values(var_list)

    def exclude_from_weight_decay(
        self,
        var_list: Sequence[Any] | None = None,
        var_names: Sequence[str] | None = None,
    ) -> None:
        """Exclude variables from the wrapped optimizer's weight decay."""
        self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

    # -- files -------------------------------------------------------------------------

    def save_own_variables(self, store: Any) -> None:
        """Save the wrapper's own variables; Keras saves the wrapped optimizer's."""
        for position, variable in enumerate(self._variables):
            store[str(position)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Load the variables of ``save_own_variables``.

        A file of an optimizer that was not built lacks the variables of ``build``,
        which keep their initial values. The state of another wrapper is left out with a
        warning, as in Keras' optimizers. Files have no names: dtypes tell a scale from
        a count.
        """
        own = list(self._variables)
        saved = [np.asarray(store[key]) for key in sorted(store.keys(), key=int)]
        found, expected = (
            [(tuple(v.shape), keras.backend.standardize_dtype(v.dtype)) for v in values]
            for values in (saved, own)
        )
        if found not in (expected, expected[: self._count_before_build]):
            errors.warn_user(
                f"{type(self).__name__}.load_own_variables: expected a file with the "
                f"{len(own)} variables of this wrapper, got {len(saved)} that do not "
                "fit, which are not loaded; call build before, and load into the stack "
                "that was saved, with the same kind of loss scale."
            )
            return
        for variable, value in zip(own, saved, strict=False):
            variable.assign(value)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the wrapped optimizer serialized."""
        inner = keras.saving.serialize_keras_object(self.inner_optimizer)
        return {self.argument: inner}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Any = None
    ) -> Wrapper:
        """Create a wrapper from the result of ``get_config``."""
        arguments = dict(config)
        inner = keras.saving.deserialize_keras_object(
            arguments.pop(cls.argument), custom_objects
        )
        return cls(inner, **arguments)
