"""Races of the originals: the set of traces that the original may produce.

Operations that an original left unordered may run in either order in each step, so the
same inputs have several correct results. A race is a function from a state and an event
to the possible next states. ``traces`` lists the whole set. ``is_allowed`` checks one
trace without listing the set.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from lockstep.scalers import BackoffPolicy, BackoffState, step_automatic

State = TypeVar("State", bound=Hashable)
Event = TypeVar("Event")
Race = Callable[[State, Event], Iterable[State]]


class Look(NamedTuple):
    """The properties of gradients that a step of a loss scaler uses."""

    has_nan: bool
    amax: float


def traces(
    race: Race[State, Event],
    start: State,
    events: Sequence[Event],
    observe: Callable[[State], Hashable] = lambda state: state,
) -> set[tuple[Hashable, ...]]:
    """Return every trace that ``events`` may produce, as seen by ``observe``.

    There may be 2^n of them for n events.
    """
    paths: set[tuple[tuple[Hashable, ...], State]] = {((), start)}
    for event in events:
        paths = {
            ((*trace, observe(after)), after)
            for trace, state in paths
            for after in race(state, event)
        }
    return {trace for trace, _ in paths}


def is_allowed(
    race: Race[State, Event],
    start: State,
    steps: Iterable[tuple[Event, Hashable]],
    observe: Callable[[State], Hashable] = lambda state: state,
) -> bool:
    """Return whether a trace is allowed. ``steps`` are pairs (event, observation).

    All states that agree with the observations so far are tracked.
    """
    states = {start}
    for event, observation in steps:
        after = {state for before in states for state in race(before, event)}
        states = {state for state in after if observe(state) == observation}
    return bool(states)


def either(*orders: Callable[[State, Event], State]) -> Race[State, Event]:
    """Return the race in which any of ``orders`` may happen in each step."""

    def race(state: State, event: Event) -> Iterable[State]:
        for order in orders:
            yield order(state, event)

    return race


def backoff_race(policy: BackoffPolicy) -> Race[BackoffState, Look]:
    """Return the race of Backoff: its counter is read before or after its increment.

    In each step, the value of i that is read may be one larger. The growth rule uses
    it, and an overflow stores it. The counter itself always grows by one per step.
    """

    def step(late: int, state: BackoffState, look: Look) -> BackoffState:
        read = state._replace(iteration=state.iteration + late)
        after: BackoffState = step_automatic(policy, read, *look)
        return after._replace(iteration=state.iteration + 1)

    return either(partial(step, 0), partial(step, 1))
