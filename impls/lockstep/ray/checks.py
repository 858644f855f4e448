"""Checks of a center: of the workers that join, and of the changes they push."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import numpy as np

from lockstep.interface import Array
from lockstep.messages import ray as refusals
from lockstep.messages.workers import refusals as worker_refusals
from lockstep.messages.workers.agn import GRADIENT
from lockstep.messages.workers.center import other_groups
from lockstep.messages.workers.getter import check_names, listed
from lockstep.ray.shared_weights import Layout, Membership

__all__ = ["check_layout", "check_membership", "nonfinite_names"]


def check_membership(first: Membership, other: Membership, center: str) -> None:
    """Raise unless a worker may join the center of the first worker.

    Raises:
        UnsupportedError: a ValueError; it has another version, commit, backend or
            groups, or weights that the center does not have.
    """
    if other.release != first.release:
        raise refusals.OTHER_RELEASE.error(
            center=center, expected=first.release, got=other.release
        )
    if other.commit != first.commit:
        raise refusals.OTHER_COMMIT.error(
            center=center, expected=first.commit, got=other.commit
        )
    check_names(first.layout, other.layout)
    for name, own in other.layout.items():
        if own != first.layout[name]:
            raise worker_refusals.OTHER_CENTER.error(
                name=name, shared=first.layout[name], own=own
            )
    if first.commit != GRADIENT:
        return
    if other.backend != first.backend:
        raise refusals.OTHER_BACKEND.error(
            center=center, expected=first.backend, got=other.backend
        )
    none: list[str] = []
    for ours, theirs in zip_longest(first.groups, other.groups, fillvalue=none):
        if ours != theirs:
            raise other_groups(ours, theirs)


def check_layout(changes: Mapping[str, Array], known: Layout, center: str) -> None:
    """Raise unless each change fits the weight of its name.

    Raises:
        UnsupportedError: a ValueError; there is no such weight.
        ShapeError: a ValueError; the shape or the dtype differs.
    """
    check_names(known, changes)
    for name, change in changes.items():
        got = f"{change.dtype} {list(change.shape)}"
        if got != known[name]:
            raise refusals.OTHER_SHAPE.error(
                center=center, name=name, expected=known[name], got=got
            )


def nonfinite_names(changes: Mapping[str, Array]) -> str:
    """Return the first few names of changes with inf or NaN; "" if there are none."""
    return listed([n for n, c in changes.items() if not np.isfinite(c).all()])
