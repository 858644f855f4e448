"""What AGN does alike for TensorFlow and Keras: names, centers and arguments."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep import errors, pipeline
from lockstep.checks import check_integer
from lockstep.interface import Array
from lockstep.ray.center import as_ray_host
from lockstep.ray.served_center import check_fit
from lockstep.ray.worker import RemoteView
from lockstep.tf.shared.gradients import (
    as_variable,
    key_of,
    name_of,
    refuse_parameter_servers,
)

GLOBAL_VARIABLE_NAME = "global_center_variable"
GRAD_VARIABLE_NAME = "grad_variable"
GRADIENT, DELTA = COMMITS = ("gradient", "delta")

Make = Callable[[str, bool], Any]
"""Makes a variable, given the prefix of its name, and whether it is zero."""

# -- a worker's variables --------------------------------------------------------------


class VariableMap(Mapping[Any, Any]):
    """A mapping from variables, which TensorFlow 2 does not allow in a dict."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        return self._values[key_of(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._values[key_of(key)] = value

    def __iter__(self) -> Iterator[tf.Variable]:
        return (reference.deref() for reference in self._values)

    def __len__(self) -> int:
        return len(self._values)


class Getter:
    """A worker's variables: their names, shared variables and accumulators."""

    def __init__(self, worker_device: Any, center: Any) -> None:
        super().__init__()
        self.worker_device = worker_device
        self.center = center
        self.may_add = False
        self.names = VariableMap()
        self._global_map = VariableMap()
        self._grad_map = VariableMap()

    def _register(self, variables: Any, make: Callable[..., Any]) -> list[Any]:
        """Register existing variables, whose copies ``make`` makes; return them."""
        pairs = named_pairs(variables)
        with self.center.lock, tf.init_scope():
            new: dict[str, Any] = {}
            known = {key_of(variable) for variable in self.names}
            for own_name, variable in pairs:
                if not variable.trainable or key_of(variable) in known:
                    continue
                taken = {*self.names.values(), *new}
                if own_name in taken:
                    raise errors.UnsupportedError(
                        "AGNCustomGetter: expected one variable of each name, got "
                        f"another {own_name!r}; use other names."
                    )
                default = getattr(variable, "path", variable.name).removesuffix(":0")
                new[own_name or unused_name(default, taken)] = variable
                known.add(key_of(variable))
            self._check(new)
            for name, variable in new.items():
                self._enter(name, variable, partial(make, name, variable))
        return [variable for _, variable in pairs]

    def _check(self, new: Mapping[str, Any]) -> None:
        """Raise unless all of these may join the center; none has joined yet."""
        self.may_add = self.may_add or not self.center.shared
        self.center.check(new, self.may_add)

    def _enter(self, name: str, own: Any, make: Make) -> None:
        """Register a variable by its name at the center."""
        self._global_map[own] = self.center.join(
            name, partial(make, GLOBAL_VARIABLE_NAME, False)
        )
        with tf.compat.v1.device(self.worker_device):
            self._grad_map[own] = make(GRAD_VARIABLE_NAME, True)
        self.names[own] = name


def center_for_worker(center: Any, local: type, remote: type) -> Any:
    """Return the argument ``center`` of a getter as a center; None makes one."""
    if host := as_ray_host(center):
        return remote(host)
    if center is None:
        return local()
    if not isinstance(center, local):
        raise errors.GetterError(
            "AGNCustomGetter: center: expected the center of another worker's getter, "
            f"got {type(center).__name__}; pass center=getter.center."
        )
    return center.for_worker()


def named_pairs(variables: Any) -> list[tuple[str | None, Any]]:
    """Return (name or None, variable) of a model, of variables or of such pairs."""
    listed = getattr(variables, "trainable_variables", variables)
    fine = isinstance(listed, Iterable) and not isinstance(listed, tf.Variable)
    entries = list(listed) if fine else [None]
    pairs = [e if isinstance(e, tuple | list) else (None, e) for e in entries]
    fine = all(isinstance(as_variable(pair[-1]), tf.Variable) for pair in pairs)
    if not fine or getattr(variables, "built", True) is False:
        raise errors.GetterError(
            "AGNCustomGetter: expected a built model, variables or pairs (name, "
            f"variable), got {variables!r:.80}; call a model on a batch first."
        )
    return [(name, v.deref() if hasattr(v, "deref") else v) for name, v in pairs]


def unused_name(name: str, taken: Iterable[str]) -> str:
    """Return a name, with a number if it is taken, in the order of registration."""
    numbered = (f"{name}#{count}" for count in itertools.count(1))
    return next(n for n in itertools.chain([name], numbered) if n not in taken)


def layouts(variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the dtype and the shape of each variable."""
    return {
        name: f"{as_variable(v).dtype.base_dtype.name} {list(v.shape)}"
        for name, v in variables.items()
    }


def check_worker(
    optimizer: Any,
    num_worker: Any,
    custom_getter: Any,
    getter_class: type,
    communication_period: Any,
    commit: Any,
) -> None:
    """Raise for arguments of ``AGNOptimizer`` that do not fit."""
    owner = "AGNOptimizer"
    refuse_parameter_servers(owner)
    inside = pipeline.has_layer(optimizer, owner)
    scales = "unscale" in pipeline.stages_of(optimizer)
    if inside or scales or getattr(optimizer, "gradient_accumulation_steps", 0):
        raise errors.UnsupportedError(
            f"{owner}: expected the optimizer that a worker trains with, got "
            f"{type(optimizer).__name__}; put a loss scale around {owner}, use float32 "
            "variables without masters, accumulate with communication_period, and make "
            f"one {owner} for each worker."
        )
    if not isinstance(custom_getter, getter_class):
        raise errors.GetterError(
            f"{owner}: custom_getter: expected an AGNCustomGetter, got "
            f"{custom_getter!r:.80}; pass the one that has the worker's variables."
        )
    if commit not in COMMITS:
        raise errors.unknown_name(f"{owner}: commit", commit, COMMITS)
    check_integer(owner, "num_worker", num_worker)
    check_integer(owner, "communication_period", communication_period)


# -- rounds ----------------------------------------------------------------------------


class Worker:
    """The rounds of an ``AGNOptimizer``, apart from the steps of its optimizer."""

    GLOBAL_VARIABLE_NAME = GLOBAL_VARIABLE_NAME
    GRAD_VARIABLE_NAME = GRAD_VARIABLE_NAME

    def _require_known(self, variables: Iterable[Any]) -> None:
        """Raise for a variable that the getter does not know."""
        for variable in variables:
            if variable not in self.custom_getter.names:
                raise errors.NotFromGetterError(
                    "AGNOptimizer: expected variables of its AGNCustomGetter, got "
                    f"{name_of(variable)!r}; call the getter with it first."
                )

    def _accumulators(self, variables: Iterable[Any]) -> list[tf.Variable]:
        return [as_variable(self.custom_getter._grad_map[v]) for v in variables]

    def _end_round(self, variables: Sequence[Any], rule: Any) -> tf.Operation | None:
        """Push the means of these variables, then pull the shared ones."""
        sums = [total.read_value() for total in self._accumulators(variables)]
        # These tensors are pushed: a variable that is written meanwhile would race.
        means = [total / self.communication_period for total in sums]
        names = [self.custom_getter.names[variable] for variable in variables]
        changes = dict(zip(names, means, strict=True))
        rule = None if self.commit == DELTA else rule
        pushed = self.custom_getter.center.push(changes, rule)
        with tf.control_dependencies([pushed, *means]):
            return self._begin_round(variables)

    def _begin_round(self, variables: Sequence[Any]) -> tf.Operation | None:
        """Copy the shared variables to these, and reset their accumulators to 0."""
        names = [self.custom_getter.names[variable] for variable in variables]
        values = self.custom_getter.center.pull(names)
        pulls = [
            as_variable(variable).assign(values[name], read_value=False)
            for variable, name in zip(variables, names, strict=True)
        ]
        totals = self._accumulators(variables)
        resets = [a.assign(tf.zeros_like(a), read_value=False) for a in totals]
        return tf.group(*pulls, *resets)

    def get_init_op(self, task_index: int) -> tf.Operation | None:
        """Set a worker's variables to the shared ones and its accumulators to 0.

        Do this before training, and in a worker that joins later. In a graph the result
        is an operation to run; elsewhere it is done when the call returns.
        ``task_index`` has no effect.

        Raises:
            NoGradientsError: a ValueError; the getter has no variables.
        """
        variables = list(self.custom_getter.names)
        if not variables:
            raise errors.NoGradientsError(
                "AGNOptimizer.get_init_op: expected at least one trainable variable, "
                "got none; call the AGNCustomGetter with the worker's variables, or "
                "make them through it, first."
            )
        done = self._begin_round(variables)
        # A tf.function runs it, and cannot return it.
        is_graph = not tf.compat.v1.executing_eagerly_outside_functions()
        return done if is_graph else None

    def _place_in_round(self) -> str:
        """Return the end of an eager step's report."""
        step = int(self.local_step.numpy())
        left = -step % self.communication_period
        ending = f"{left} more before the push" if left else "pushed and pulled"
        return f"local step {step}, {ending}"


# -- the shared variables --------------------------------------------------------------


class Center:
    """Shared variables.

    Attributes:
        shared: name of a worker's variable -> the shared variable.
        lock: held while a thread pushes, pulls, or adds variables or slots.
        saves_itself: whether the center's state is not saved with a worker's.
    """

    saves_itself = False

    def __init__(self) -> None:
        super().__init__()
        self.shared: dict[str, Any] = {}
        self.lock: threading.RLock
        # Not setattr: TensorFlow would track it.
        vars(self)["lock"] = threading.RLock()
        self.commit: str | None = None

    def for_worker(self) -> Center:
        """Return the center for another worker."""
        return self

    def begin(self, commit: str, optimizer: Any) -> None:
        """Prepare for the pushes of a worker with this ``commit`` and optimizer."""
        if self.commit not in (None, commit):
            raise errors.UnsupportedError(
                f"AGNOptimizer: expected commit={self.commit!r}, as the first worker of"
                f" the center has, got {commit!r}; give all workers the same."
            )
        self.commit = commit

    def leave(self) -> None:
        """Note that a worker is done."""

    def check(self, variables: Mapping[str, Any], may_add: bool) -> None:
        """Raise unless these may join: name -> a worker's variable."""
        own = layouts(variables)
        known = layouts(self.shared)
        check_fit(own | known if may_add else known, own)

    def join(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the shared variable of this name; the first worker makes it."""
        if name not in self.shared:
            self.shared[name] = make()
        return self.shared[name]

    def pull(self, names: Iterable[str]) -> dict[str, tf.Tensor]:
        """Return the values of the shared variables of these names."""
        with self.lock:
            return {name: as_variable(self.shared[name]).read_value() for name in names}

    def add(self, changes: Mapping[str, tf.Tensor]) -> tf.Operation | None:
        """Add changes to the shared variables of their names."""
        with self.lock:
            adds = [
                as_variable(self.shared[name]).assign_add(
                    change, use_locking=True, read_value=False
                )
                for name, change in changes.items()
            ]
            return tf.group(*adds)


class ServedTensors:
    """The weights of a center in its own process, and their optimizer.

    A subclass creates ``center`` there, and returns the optimizer's ``state``.
    """

    center: Any

    def state(self) -> Mapping[str, Any]:
        """Return the variables of the optimizer, by names that only it has."""
        raise NotImplementedError

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return copies of weights."""
        names = self.center.shared if names is None else names
        pulled = self.center.pull(names)
        return {name: np.array(tensor.numpy()) for name, tensor in pulled.items()}

    def saved(self) -> Any:
        """Return the weights and the optimizer's state, as arrays."""
        state = {name: np.array(v.numpy()) for name, v in self.state().items()}
        return {"weights": self.pull(), "optimizer": state}

    def load(self, saved: Any) -> None:
        """Load weights and state; raise for the state of another optimizer."""
        own, state = self.state(), saved["optimizer"]
        if state.keys() != own.keys():
            raise errors.UnsupportedError(
                "AGNOptimizer: expected the checkpoint of a center with the state "
                f"{list(own)}, got one with {list(state)}; start with the optimizer "
                "that was saved, or in another directory."
            )
        for name, weight in saved["weights"].items():
            self.center.shared[name].assign(weight)
        for name, variable in own.items():
            variable.assign(state[name])


class RemoteTensors(RemoteView):
    """A worker's view of a center on Ray, with its copies of the shared variables.

    In the list of base classes it is before the backend's ``Center``.
    """

    shared: dict[str, Any]

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        self.require_eager()
        return {name: variable.numpy() for name, variable in self.shared.items()}

    def check(self, variables: Mapping[str, Any], may_add: bool) -> None:
        """Raise unless these may join: name -> a worker's variable."""
        self.require_fit(layouts(variables))

    def join(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the shared variable of this name, with the center's value."""
        variable = super().join(name, make)
        if name in self.known:
            variable.assign(self.known[name])
        return variable

    def pull(self, names: Iterable[str]) -> dict[str, tf.Tensor]:
        """Return the values of the shared variables, which the center sends."""
        self.require_eager()
        names = list(names)
        for name, weight in self.member.pull(names).items():
            # TensorFlow may share the memory of an array, and Ray's is read-only.
            self.shared[name].assign(np.array(weight))
        return super().pull(names)

    def require_eager(self) -> None:
        """Raise in a graph or a ``tf.function``, where tensors have no values yet."""
        if not tf.executing_eagerly():
            raise errors.UnsupportedError(
                "AGNOptimizer: expected an eager step for a center on Ray, got one in a"
                " graph; train outside of tf.function, and with run_eagerly=True in "
                "Keras' compile()."
            )
