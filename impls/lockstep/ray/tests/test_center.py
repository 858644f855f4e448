"""The name of a center on Ray, and what is said where Ray cannot be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.errors import (
    GetterError,
    LockstepError,
    MissingFrameworkError,
    UnsupportedError,
)
from lockstep.ray import RayCenter


def test_centers_with_resources_can_be_compared_and_be_keys() -> None:
    one, other = (RayCenter("a", resources={"big": k}) for k in (1, 0.5))
    assert one == RayCenter("a", resources={"big": 1}) != other
    assert {one: 1, other: 2}[RayCenter("a", resources={"big": 0.5})] == 2


@pytest.mark.parametrize("name", ["", "10.0.0.1:10001", "a b", "a/b", "../x"])
def test_an_address_of_a_cluster_is_no_name(name: str) -> None:
    with pytest.raises(GetterError, match=r"the address of a cluster to ray\.init"):
        RayCenter(name)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "every 0": ({"every": 0}, "an integer >= 1, got 0"),
    "every True": ({"every": True}, "got True"),
    "every 1.5": ({"every": 1.5}, r"got 1\.5"),
    "on_nonfinite": ({"on_nonfinite": "drpo"}, "did you mean 'drop'"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_settings_that_cannot_be_meant_are_refused(wrong: str) -> None:
    options, told = WRONG[wrong]
    with pytest.raises(LockstepError, match=told):
        RayCenter("digits", **options)


def test_without_ray_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingFrameworkError, match="pip install ray"):
        RayCenter("digits").status()


def test_a_process_without_a_cluster_does_not_start_one(monkeypatch) -> None:
    ray = pytest.importorskip("ray", reason="needs Ray")
    # Other tests may have connected this process to their cluster.
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delattr(ray, "init")
    with pytest.raises(UnsupportedError, match=r"call ray\.init\(\) first"):
        RayCenter("digits").status()


@pytest.mark.parametrize("package", ["pytorch", "reference", "ray"])
def test_no_backend_imports_ray_before_it_is_asked_for(package: str) -> None:
    code = f"import sys, lockstep.{package}; sys.exit('ray' in sys.modules)"
    folder = str(Path(lockstep.__file__).parents[1])
    path = f"import sys; sys.path[:0] = {[folder, *sys.path]!r}; {code}"
    done = subprocess.run(
        [sys.executable, "-c", path], capture_output=True, text=True, check=False
    )
    if "MissingFrameworkError" in done.stderr:
        pytest.skip("its framework is not installed")
    assert done.returncode == 0, done.stderr
