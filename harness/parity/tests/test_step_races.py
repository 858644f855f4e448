"""Where ``optimize_loss`` raced: which traces are allowed on a backend."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

import pytest

from harness.parity import drivers
from harness.parity.cases import Case
from harness.parity.families import BY_FAMILY
from harness.parity.tests.races import either, traces
from harness.parity.tests.test_races import Weights, is_near_one_of, page_of
from lockstep import registry

# -- LARC with AdamW: the norm before the decay or after it ----------------------------

RATE, DECAY, ETA, EPSILON = 0.5, 0.25, 0.125, 1.0
GRADIENTS = (2.0, 1.0, -2.0)
LARC_ADAMW = Case(
    "optimize_loss",
    "larc-adamw",
    "larc_clip",
    {
        "optimizer": "AdamW",
        "optimizer_params": {"weight_decay": DECAY, "epsilon": EPSILON},
        "larc_params": {"larc_eta": ETA},
        "lr_policy": {"name": "fixed_lr", "args": {"learning_rate": RATE}},
        "dtype": "float32",
        "variables": [{"name": "w", "dtype": "float32", "shape": [1], "value": [4.0]}],
        "gradients": [[[g]] for g in GRADIENTS],
    },
    {"steps": [{} for _ in GRADIENTS]},
)


class Adam(NamedTuple):
    """A weight, its two moments and the count of steps."""

    w: float
    m: float = 0.0
    v: float = 0.0
    t: int = 0


def adamw(seen_decay: float, state: Adam, gradient: float) -> Adam:
    """LARC by a norm that has seen this decay or none, then the decay, then Adam."""
    w, m, v, t = state
    seen = abs(w * (1 - seen_decay))
    g = gradient * min(ETA * seen / (RATE * (abs(gradient) + 1e-7)), 1)
    t, m, v = t + 1, 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    rate = RATE * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    w -= RATE * DECAY * w
    return Adam(w - rate * m / (math.sqrt(v) + EPSILON), m, v, t)


LARC_RACE = either(partial(adamw, 0.0), partial(adamw, RATE * DECAY))
BACKENDS = ["reference", "tf:eager", "tf:graph", "pytorch"]
"""Keras' AdamW has another rule: test_keras_steps.py. The mode v1 would change this
process for all tests after it: test_optimize_loss_sessions.py starts others."""


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
@pytest.mark.parametrize("name", BACKENDS)
def test_larc_reads_the_weight_before_its_decay(name: str, strict: bool) -> None:
    backend, _, mode = name.partition(":")
    if strict and not registry.find(backend).has_strict:
        pytest.skip(f"{backend} has one behaviour")
    if not registry.installed(backend):
        pytest.skip(f"{backend} needs a framework that is not installed")
    with closing(drivers.load(backend, mode or None, strict)) as driver:
        states = BY_FAMILY[LARC_ADAMW.family].replay(LARC_ADAMW, driver)
        found = [state["variables/w"].item() for state in states]
    allowed = traces(LARC_RACE, Adam(4.0), GRADIENTS, lambda state: state.w)
    before = traces(either(partial(adamw, 0.0)), Adam(4.0), GRADIENTS, lambda s: s.w)
    assert len(allowed) == 2 ** len(GRADIENTS)
    assert before < allowed
    assert is_near_one_of(found, before)
    assert not is_near_one_of(found, allowed - before)


def test_the_page_prints_every_trace_of_larc_with_adamw() -> None:
    lines = page_of("larc_adamw").splitlines()
    allowed = traces(LARC_RACE, Adam(4.0), GRADIENTS[:2], lambda state: state.w)
    before = (adamw(0.0, Adam(4.0), GRADIENTS[0]),)
    before += (adamw(0.0, before[0], GRADIENTS[1]),)
    found = {tuple(json.loads(line.partition("  ")[0])) for line in lines}
    assert len(found) == len(lines) == len(allowed)
    assert all(is_near_one_of(trace, allowed) for trace in found)
    (own,) = marked(lines)
    assert is_near_one_of(json.loads(own), {tuple(state.w for state in before)})


# -- optimize_loss: the loss before the update or after it -----------------------------


def test_the_page_prints_every_trace_of_the_loss() -> None:
    def told(position: int, weights: Weights, _: int) -> Weights:
        after = weights[-1] - 0.25 * 2 * weights[-1]
        return (weights[-1], after)[position] ** 2, after

    race = either(partial(told, 0), partial(told, 1))
    allowed = traces(race, (0.0, 2.0), range(2), lambda state: state[0])
    lines = page_of("optimize_loss_value").splitlines()
    assert [line.partition("  ")[0] for line in lines] == [
        str(list(trace)) for trace in sorted(allowed, key=str, reverse=True)
    ]
    assert marked(lines) == ["[4.0, 1.0]"]


def marked(lines: Sequence[str]) -> list[str]:
    """Return the traces that the page says are those of both modes."""
    pairs = [line.partition("  ") for line in lines]
    assert {mark for _, _, mark in pairs} <= {"", "default and strict"}
    return [trace for trace, _, mark in pairs if mark]
