"""A check that all backends share: workers of several threads register one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import pytest

__all__ = ["assert_second_waits"]


def assert_second_waits(
    first: Any,
    second: Any,
    make: Callable[[], Sequence[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let ``second`` begin while ``first`` registers, and check that it waits.

    Otherwise it would find a center with a part of the variables, and be refused. Both
    are getters of one center. ``make`` returns variables of a worker's own.
    """
    center, join = first.center, first.center.join
    waited: list[bool] = []
    others: list[Thread] = []

    def interrupted(*arguments: Any) -> Any:
        joined = join(*arguments)
        if not others:
            others.append(Thread(target=second, args=(make(),)))
            others[0].start()
            others[0].join(0.2)
            waited.append(others[0].is_alive())
        return joined

    monkeypatch.setattr(center, "join", interrupted)
    first(make())
    others[0].join(60)
    assert waited == [True]
    assert len(second._global_map) == len(make())
