"""What AGN does alike for TensorFlow and Keras: names, centers and arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep import errors, pipeline
from lockstep.checks import check_integer
from lockstep.interface import Array
from lockstep.ray.center import as_ray_host
from lockstep.ray.worker import RemoteView
from lockstep.tf.shared.gradients import as_variable, refuse_parameter_servers

GLOBAL_VARIABLE_NAME = "global_center_variable"
GRAD_VARIABLE_NAME = "grad_variable"
GRADIENT, DELTA = COMMITS = ("gradient", "delta")


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


def new_names(
    pairs: Iterable[tuple[str | None, Any]],
    known: Collection[Any],
    taken: Collection[str],
    key_of: Callable[[Any], Any],
) -> dict[str, Any]:
    """Return name -> variable of the trainable ones whose keys are not ``known``."""
    new: dict[str, Any] = {}
    known, taken = set(known), set(taken)
    for own_name, variable in pairs:
        if not variable.trainable or key_of(variable) in known:
            continue
        if own_name in taken:
            raise errors.UnsupportedError(
                "AGNCustomGetter: expected one variable of each name, got another "
                f"{own_name!r}; use other names."
            )
        default = getattr(variable, "path", variable.name).removesuffix(":0")
        name = own_name or unused_name(default, taken)
        new[name] = variable
        known.add(key_of(variable))
        taken.add(name)
    return new


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number if it is taken, in the order of registration."""
    numbered = (f"{name}#{count}" for count in itertools.count(1))
    return next(n for n in itertools.chain([name], numbered) if n not in taken)


def layout_of(variable: Any) -> str:
    """Return the dtype and the shape of a variable."""
    return f"{as_variable(variable).dtype.base_dtype.name} {list(variable.shape)}"


def check_joining(
    shared: Mapping[str, Any], variables: Mapping[str, Any], may_add: bool
) -> None:
    """Raise unless a worker's variables fit the shared ones, both by name."""
    unknown = [name for name in variables if name not in shared]
    if unknown and not may_add:
        raise errors.UnsupportedError(
            f"AGNCustomGetter: expected names that the center has, got {unknown}; give "
            "each worker's variables the same names, or pass pairs (name, variable). "
            "Only the first worker adds names."
        )
    for name, variable in variables.items():
        expected, own = layout_of(shared.get(name, variable)), layout_of(variable)
        if expected != own:
            raise errors.UnsupportedError(
                f"AGNCustomGetter: expected {name!r} to be {expected}, as the shared "
                f"one, got {own}; use another name."
            )


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


class RemoteTensors(RemoteView):
    """A worker's view of a center on Ray, with its copies of the shared variables."""

    shared: dict[str, Any]

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        return {name: variable.numpy() for name, variable in self.shared.items()}

    def check(self, variables: Mapping[str, Any], may_add: bool) -> None:
        """Raise unless these may join: name -> a worker's variable."""
        self.require_fit({name: layout_of(v) for name, v in variables.items()})

    def join(self, name: str, make: Any) -> Any:
        """Return the shared variable of this name, with the center's value."""
        variable = super().join(name, make)
        if name in self.known:
            variable.assign(self.known[name])
        return variable

    def fetch(self, names: Iterable[str]) -> None:
        """Update the copies of these weights from the center."""
        self.require_eager()
        for name, weight in self.member.pull(names).items():
            # TensorFlow may share the memory of an array, and Ray's is read-only.
            self.shared[name].assign(np.array(weight))

    def require_eager(self) -> None:
        """Raise in a graph or a ``tf.function``, where tensors have no values yet."""
        if not tf.executing_eagerly():
            raise errors.UnsupportedError(
                "AGNOptimizer: expected an eager step for a center on Ray, got one in a"
                " graph; train outside of tf.function, and with run_eagerly=True in "
                "Keras' compile()."
            )


def require_kinds(saved: list[str], own: list[str]) -> None:
    """Raise for the checkpoint of a center with another optimizer."""
    if saved != own:
        raise errors.UnsupportedError(
            f"AGNOptimizer: expected the checkpoint of a center with {own}, got one "
            f"with {saved}; start with the optimizer that was saved, or in another "
            "directory."
        )
