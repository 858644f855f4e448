"""Races of the originals: sets of allowed traces, where one trace would be a guess.

Operations that an original left unordered may run in either order, anew in each step,
so the same inputs have several right results. A race is a function from a state and
an event to the states that may come next. ``traces`` spells the set out;
``is_allowed`` says whether a trace is in it, without spelling it out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from lockstep.messages.scaling.automatic_scaler import BackoffPolicy
from lockstep.reference.scaling.backoff import BackoffState, step_backoff

__all__ = ["Look", "Race", "backoff_race", "either", "is_allowed", "traces"]

State = TypeVar("State", bound=Hashable)
Event = TypeVar("Event")
Race = Callable[[State, Event], Iterable[State]]


class Look(NamedTuple):
    """The properties of the gradients that a step of a loss scaler uses."""

    has_nan: bool
    amax: float


def traces(
    race: Race[State, Event],
    start: State,
    events: Sequence[Event],
    observe: Callable[[State], Hashable] = lambda state: state,
) -> set[tuple[Hashable, ...]]:
    """Return every trace that ``events`` may leave: what ``observe`` sees, each step.

    There may be two to the power of their number.
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
    """Return whether a trace is allowed; ``steps``: each event, and what was observed.

    Follows all states that agree with the observations so far.
    """
    states = {start}
    for event, observation in steps:
        after = {state for before in states for state in race(before, event)}
        states = {state for state in after if observe(state) == observation}
    return bool(states)


def either(*orders: Callable[[State, Event], State]) -> Race[State, Event]:
    """Return the race in which each step is one of ``orders``, whichever it happens."""

    def race(state: State, event: Event) -> Iterable[State]:
        for order in orders:
            yield order(state, event)

    return race


def backoff_race(policy: BackoffPolicy) -> Race[BackoffState, Look]:
    """Return the race of Backoff: its counter is read before or after its increment.

    In any step i may be one larger, for the rule of growth and for what is remembered
    of an overflow; the counter itself is one larger after every step.
    """

    def step(late: int, state: BackoffState, look: Look) -> BackoffState:
        read = state._replace(iteration=state.iteration + late)
        after = step_backoff(policy, read, *look)
        return after._replace(iteration=state.iteration + 1)

    return either(partial(step, 0), partial(step, 1))
