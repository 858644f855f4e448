"""Runs of a method in a given order of events, without times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.simulator.methods import Downpour, Gradients, Weights
from harness.simulator.run import Interleaving


def interleave(
    method: Downpour,
    weights: Weights,
    workers: int,
    events: Iterable[tuple[int, Gradients]],
) -> Iterable[Interleaving]:
    """Run local steps in the order of ``events``; pushes and pulls take no time.

    Args:
        method: the method. If it waits for all workers, they must take turns in
            ``events``.
        weights: the initial weights of the server and of every worker.
        workers: the number of workers.
        events: (number of the worker, its gradients).

    Yields:
        The same object after each event: its ``workers`` and its ``server``.
    """
    state = Interleaving(method, weights, workers)
    waiting: dict[int, tuple[Weights, Any]] = {}
    for number, gradients in events:
        if state.step(number, gradients):
            waiting[number] = method.push(state.workers[number])
        if waiting and (len(waiting) == workers or not method.waits_for_all):
            for sender, reply in state.apply(waiting).items():
                state.pull(sender, reply)
            waiting = {}
        yield state
