"""Workers of ``AGNOptimizer`` in one process, as the drivers create them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from harness.parity.drivers.protocol import Worker
from lockstep.interface import Array
from lockstep.tf.agn import GLOBAL_VARIABLE_NAME
from lockstep.tf.replicas import name_of

__all__ = ["eager_facts", "eager_workers", "graph_facts", "graph_workers"]

v1 = tf.compat.v1


def eager_workers(driver: Any, named: Mapping[str, Array], count: int) -> list[Worker]:
    """Create workers from existing variables."""
    workers: list[Worker] = []
    for _ in range(count):
        getter = new_getter(driver, workers)
        own = getter([driver.variable(name, value) for name, value in named.items()])
        workers.append(worker_of(own, getter, contextlib.nullcontext))
    return workers


def graph_workers(driver: Any, named: Mapping[str, Array], count: int) -> list[Worker]:
    """Create workers with ``get_variable``, as TensorFlow 1 code does.

    Each worker's own variables are called ``worker_K/NAME`` instead of ``NAME``.
    """
    workers: list[Worker] = []
    for number in range(count):
        getter, scope = new_getter(driver, workers), f"worker_{number}"
        outside = v1.variable_scope("", custom_getter=partial(rename, scope))
        with outside, v1.variable_scope("", custom_getter=getter):
            own = [
                v1.get_variable(name, initializer=tf.constant(value))
                for name, value in named.items()
            ]
        workers.append(worker_of(own, getter, partial(v1.variable_scope, scope)))
    return workers


def new_getter(driver: Any, others: Sequence[Worker]) -> Any:
    """Create a getter that shares the center of the other workers."""
    center = others[0].getter.center if others else None
    return driver.names.AGNCustomGetter("/cpu:0", center=center)


def rename(scope: str, getter: Callable[..., Any], name: str, **kwargs: Any) -> Any:
    """Create a variable. Put it into ``scope`` unless it is shared."""
    shared = name.startswith(GLOBAL_VARIABLE_NAME)
    return getter(name if shared else f"{scope}/{name}", **kwargs)


def worker_of(own: Sequence[Any], getter: Any, scope: Callable[[], Any]) -> Worker:
    """Collect what a getter created for these variables."""
    centers = [getter._global_map[variable] for variable in own]
    accumulators = [getter._grad_map[variable] for variable in own]
    return Worker(own, centers, accumulators, getter, scope)


def eager_facts(getter: Any, named: Mapping[str, bool]) -> dict[str, Any]:
    """Pass variables to a getter; return the facts about the trainable one."""
    variables = [
        tf.Variable([0.0], trainable=trainable, name=name)
        for name, trainable in named.items()
    ]
    first, again = getter(variables), getter(variables)
    same = all(a is b for a, b in zip(first, again, strict=True))
    (own,) = getter._global_map
    return facts_of(getter, own, same)


def graph_facts(getter: Any, named: Mapping[str, bool]) -> dict[str, Any]:
    """Create variables twice in a scope with the getter; return the facts."""

    def make(name: str, trainable: bool, reuse: bool | None) -> Any:
        scope, _, last = name.rpartition("/")
        with v1.variable_scope(scope, custom_getter=getter, reuse=reuse):
            return v1.get_variable(last, [2], trainable=trainable)

    variables = {name: make(name, trainable, None) for name, trainable in named.items()}
    same = all(make(name, named[name], True) is v for name, v in variables.items())
    (own,) = getter._global_map
    keys = {
        "collection/global": v1.GraphKeys.GLOBAL_VARIABLES,
        "collection/local": v1.GraphKeys.LOCAL_VARIABLES,
        "collection/trainable": v1.GraphKeys.TRAINABLE_VARIABLES,
    }
    collected = {
        fact: sorted(name_of(variable) for variable in v1.get_collection(key))
        for fact, key in keys.items()
    }
    return facts_of(getter, own, same) | collected


def facts_of(getter: Any, own: Any, same: bool) -> dict[str, Any]:
    """Return what a getter created for a variable, as in ``getter_facts``."""
    return {
        "name/local": name_of(own),
        "name/global": name_of(getter._global_map[own]),
        "name/accumulator": name_of(getter._grad_map[own]),
        "reuse_gives_same": same,
        "mapped_variables": len(getter._global_map),
    }
