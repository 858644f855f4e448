"""The base of all wrappers: a Keras optimizer around another one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from lockstep.errors import warn_user
from lockstep.interface import GATE_OP, NO_EAGER_STEP, NO_GRADIENTS, StepReport
from lockstep.keras3.base.gradients import (
    Gradient,
    check_gradients,
    name_of,
    require_variable,
    with_dense_shape,
    without_duplicates,
)
from lockstep.keras3.base.replicas import together
from lockstep.keras3.base.saved_state import fits, values_in
from lockstep.keras3.base.slots import Slots, base_of, build_observed
from lockstep.keras3.base.train_v1 import (
    StateList,
    TrainV1,
    require_all,
    shown_optimizer,
)
from lockstep.messages import keras3 as words
from lockstep.messages.base.pairs import as_pairs

__all__ = ["Wrapper", "layers_of", "refuse_factor", "refuse_scale"]


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
    the wrapped optimizer's, and can be read and set through the wrapper.
    ``iterations`` is its counter. A subclass overrides

    - :meth:`update`, the step: it gets checked gradients with duplicate rows summed,
      and calls ``self.inner_optimizer.apply(gradients, variables)``;
    - :meth:`build_state`, if it has its own variables: those it creates with
      ``add_variable_from_reference`` are state of that variable;
    - :meth:`get_config`, which adds its constructor's arguments to ``super()``'s.

    Args:
        inner_optimizer: any Keras optimizer, or a wrapper.
        name: by default the name of the wrapped optimizer.

    Raises:
        NotAnOptimizerError: a TypeError; no ``keras.optimizers.Optimizer``.
        UnsupportedError: a ValueError; ``keras.optimizers.LossScaleOptimizer``, which
            must be the outermost wrapper.
    """

    argument = "opt"
    """The constructor's name for the wrapped optimizer."""

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
    """The class of ``last_step``."""

    _count_before_build: int | None = None
    """The number of the wrapper's own variables before ``build`` creates the others."""

    _stand_for: Mapping[Any, Any] = MappingProxyType({})
    """Key of a master -> the model's variable, if an outer wrapper has masters."""

    def __init__(
        self, inner_optimizer: keras.optimizers.Optimizer, name: str | None = None
    ) -> None:
        refuse_scale(inner_optimizer, type(self).__name__)
        super().__init__(learning_rate=0.0, name=name or inner_optimizer.name)
        self.inner_optimizer = inner_optimizer
        self._iterations = self.base_optimizer._iterations
        # The counter is the base optimizer's, and Keras' own rate is not used, so
        # neither is state of the wrapper.
        self._forget_variables()

    def _forget_variables(self) -> None:
        """Replace the list of variables by a new, empty list.

        ``tf.train.Checkpoint`` raises for a list from which an item was removed.
        """
        is_variable, variables = self._tracker.config["variables"]
        variables = type(variables)([])
        self._tracker.config["variables"] = is_variable, variables
        self._tracker.stored_ids["variables"].clear()
        self._track_trackable(variables, "_variables", overwrite=True)
        vars(self)["_variables"] = variables

    def __setattr__(self, name: str, value: Any) -> None:
        """Store reports unchanged: Keras copies tuples, without their attributes.

        Keras' own loss scaling sets ``loss_scale_factor`` of the optimizer that it
        wraps to None. A loss scale of this package inside then has no effect, so a
        warning is issued. It is no error, because ``load_model`` wraps any optimizer of
        ``compile``.
        """
        shadows = name == "loss_scale_factor" and value is None
        if shadows and "inner_optimizer" in vars(self):
            if any(map(is_scale, layers_of(self))):
                warn_user(words.scale_shadowed(type(self).__name__))
        if isinstance(value, StepReport):
            vars(self)[name] = value
        else:
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        own = [f"{name}={value!r}" for name, value in self.shown().items()]
        parts = [shown_optimizer(self.inner_optimizer), *own]
        parts += ["strict=True"] * self.strict
        return f"{type(self).__name__}({', '.join(parts)})"

    def shown(self) -> Mapping[str, Any]:
        """Return the arguments that a repr shows after the wrapped optimizer."""
        return {}

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

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables``, here and in the wrapped optimizer."""
        if self.built:
            return
        variables = require_all(variables, type(self).__name__)
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
        inner = self.inner_optimizer
        if not isinstance(inner, Wrapper):
            return build_observed(inner, variables)
        inner.build(variables)
        return inner._slots

    def build_state(self, variables: Sequence[Any]) -> None:
        """Create the wrapper's own variables; by default there are none."""

    def add_variable_from_reference(
        self,
        reference_variable: Any,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable:
        """Create a state variable like ``reference_variable``, and register it."""
        slot = super().add_variable_from_reference(
            reference_variable, name, initializer
        )
        self._slots.add(reference_variable, name or "var", slot)
        return slot

    @tf.autograph.experimental.do_not_convert
    def apply(
        self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Take a step, as called by Keras; if it raises, nothing has changed.

        Args:
            grads: a gradient or None for each variable.
            trainable_variables: the variables; None: those passed to ``build``.
        """
        owner, gradients = type(self).__name__, list(grads)
        if not gradients:
            return
        if trainable_variables is None and not self.built:
            raise words.NO_VARIABLES.error(owner=owner)
        if trainable_variables is None:
            trainable_variables = self._trainable_variables
        variables = [require_variable(v, owner) for v in trainable_variables]
        gradients = check_gradients(gradients, variables, owner, self.takes_wide)

        def step(gradients: list[Gradient]) -> None:
            for variable in variables:
                if self._var_key(variable) not in self._trainable_variables_indices:
                    name = name_of(variable)
                    raise words.UNKNOWN_VARIABLE.error(owner=owner, name=name)
            self.update(self.prepared(gradients, variables), variables)

        self.forget_report()
        build = self.builds(variables)
        together(owner, build, step, gradients, variables)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> tf.Variable:
        """Update the variables: see the base class."""
        if global_step is not None:
            return super().apply_gradients(grads_and_vars, global_step, name)
        pairs = as_pairs(grads_and_vars, type(self).__name__)
        self.apply(*map(list, zip(*pairs, strict=True)))
        return self._iterations

    def forget_report(self) -> None:
        """Reset reports of earlier steps, here and in the wrapped optimizers."""
        report = NO_GRADIENTS if tf.executing_eagerly() else NO_EAGER_STEP
        for layer in layers_of(self):
            layer.last_step = layer.report_class(*report)

    @property
    def keeps_duplicates(self) -> bool:
        """Whether the wrapped optimizer must get duplicate rows unsummed.

        Strict: clipping corrects, and gradient descent subtracts, each duplicate.
        """
        inner = self.inner_optimizer
        keeps = self._quirks.row_clip_duplicates
        return keeps and getattr(inner, "keeps_duplicates", False)

    def values_of(self, gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
        """Return the values of a gradient, with duplicate rows summed."""
        if self.keeps_duplicates:
            gradient = without_duplicates(gradient)
        return getattr(gradient, "values", gradient)

    @property
    def takes_wide(self) -> bool:
        """Whether half-precision variables accept float32 gradients."""
        inner = self.inner_optimizer
        return isinstance(inner, Wrapper) and inner.takes_wide

    def prepared(
        self, gradients: list[Gradient], variables: list[Any]
    ) -> list[Gradient]:
        """Return the gradients in the form that :meth:`update` expects."""
        if not self._quirks.dynamic_scale_dense_shape:
            pairs = zip(gradients, variables, strict=True)
            gradients = [with_dense_shape(*pair) for pair in pairs]
        if self.sums_duplicates and not self.keeps_duplicates:
            gradients = [without_duplicates(gradient) for gradient in gradients]
        return gradients

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the wrapper's step; by default only the wrapped optimizer's step."""
        self.inner_optimizer.apply(gradients, variables)

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

    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Gradient, Any]]:
        """Differentiate ``loss()`` with the wrapped optimizer, which may scale it.

        Arguments and errors are as in
        :meth:`~lockstep.keras3.base.train_v1.TrainV1.compute_gradients`.
        """
        inner = self.inner_optimizer
        layer = inner if isinstance(inner, Wrapper) else super()
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops
        return layer.compute_gradients(loss, var_list, *options, grad_loss)

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

    def save_own_variables(self, store: Any) -> None:
        """Save the wrapper's own variables; Keras saves the wrapped optimizer's."""
        for position, variable in enumerate(self._variables):
            store[str(position)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Load the variables of ``save_own_variables``.

        A file of an optimizer that was not built lacks the variables of ``build``.
        These keep their initial values, like the slots of the wrapped optimizer. The
        state of another wrapper is left out with a warning, as in Keras' optimizers.
        """
        own, saved = list(self._variables), values_in(store)
        counts = len(own), self._count_before_build
        if saved is None or len(saved) not in counts or not all(map(fits, saved, own)):
            name, found = type(self).__name__, len(store.keys())
            warn_user(words.other_state(name, len(own), found, self.built))
            return
        for variable, value in zip(own, saved, strict=False):
            variable.assign(value)

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Set the values of ``variables``, in their order."""
        for variable, weight in zip(self.variables, weights, strict=True):
            variable.assign(weight)

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
        if cls.argument not in arguments:
            raise words.NO_CONFIG.error(owner=cls.__name__, argument=cls.argument)
        inner = keras.saving.deserialize_keras_object(
            arguments.pop(cls.argument), custom_objects
        )
        return cls(inner, **arguments)


def layers_of(optimizer: Any) -> Iterator[Wrapper]:
    """Yield the wrappers of a stack, outermost first."""
    while isinstance(optimizer, Wrapper):
        yield optimizer
        optimizer = optimizer.inner_optimizer


def is_scale(optimizer: Any) -> bool:
    """Whether Keras treats this as a loss scaling."""
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def refuse_scale(
    optimizer: keras.optimizers.Optimizer, owner: str, remedy: str = ""
) -> None:
    """Raise for Keras' own loss scaling, which must be the outermost wrapper."""
    if is_scale(optimizer) and not isinstance(optimizer, Wrapper):
        got = type(optimizer).__name__
        remedy = remedy or f"put it outside: LossScaleOptimizer({owner}(optimizer))"
        raise words.SCALE_INSIDE.error(owner=owner, got=got, remedy=remedy)


def refuse_factor(optimizer: Any, owner: str) -> None:
    """Raise for ``loss_scale_factor``, by which Keras divides after our stages.

    Norms, limits and penalties would be those of gradients that it still multiplies.
    """
    base = base_of(optimizer)
    factor = getattr(base, "loss_scale_factor", None)
    if factor is not None:
        got = f"{type(base).__name__} with loss_scale_factor={factor}"
        remedy = "leave loss_scale_factor out, and scale with a wrapper or not at all"
        raise words.SCALE_INSIDE.error(owner=owner, got=got, remedy=remedy)
