"""Nested state is JSON and arrays, and comes back as it was."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from lockstep.ray.checkpoint import map_leaves, pack, unpack

STATE: dict[Any, Any] = {
    "state": {0: {"step": np.array(3.0, np.float32), "m": np.ones((2, 3), np.float16)}},
    "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "foreach": None, "fused": True}],
    "power": np.float32(0.9),
    "none": [],
    "empty": {},
    "name": "array",
}


def test_a_tree_comes_back_through_json_with_its_types() -> None:
    encoded, arrays = pack(STATE)
    back = unpack(json.loads(json.dumps(encoded)), arrays)
    assert repr(back) == repr(STATE)
    assert type(back["power"]) is np.float32
    assert type(back["state"][0]["step"]) is np.ndarray


def test_numbers_keep_their_bits() -> None:
    numbers = [0.1 + 0.2, 5e-324, -0.0, float("inf"), float("nan"), 2**70]
    encoded, arrays = pack(numbers)
    assert repr(unpack(json.loads(json.dumps(encoded)), arrays)) == repr(numbers)


@pytest.mark.parametrize(
    ("leaf", "told"),
    [(object(), "object"), (np.array(["a", None]), "an array of object"), (b"", "byt")],
)
def test_what_is_no_array_number_or_text_is_refused(leaf: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        pack({"a": [leaf]})


def test_a_key_that_json_would_change_is_refused() -> None:
    with pytest.raises(TypeError, match="dict"):
        pack({(1, 2): 3})


def test_a_function_is_applied_to_leaves_only() -> None:
    tree = {"a": [1, (2, 3)], "b": 4}
    assert map_leaves(lambda x: -x, tree) == {"a": [-1, (-2, -3)], "b": -4}
