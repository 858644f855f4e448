"""Environments: pinned by hash, made in this checkout only, and never behind a link."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.processes.children import ROOT

LOCKS = ROOT / "harness" / "environments"
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "dependency-groups"
]


def requirements(name: str) -> list[str]:
    """Return the requirements of a lock file, each with its continued lines."""
    text = (LOCKS / f"{name}.txt").read_text("utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and line.lstrip()[0] != "#"]


@pytest.mark.parametrize("name", sorted(path.stem for path in LOCKS.glob("*.txt")))
def test_every_requirement_is_pinned_by_hash(name: str) -> None:
    assert requirements(name)
    for line in requirements(name):
        assert re.match(r"[\w.\[\]-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line


@pytest.mark.parametrize("name", ["nox", "oracle"])
def test_a_lock_has_what_its_group_pins(name: str) -> None:
    pinned = {line.split()[0] for line in requirements(name)}
    exact = {each for each in GROUPS[name] if "==" in each}
    assert exact and exact <= pinned


def test_the_torch_of_the_lock_is_that_of_the_noxfile() -> None:
    (version,) = re.findall(
        r'^TORCH = "(.*)"$', (ROOT / "noxfile.py").read_text("utf-8"), re.M
    )
    assert {line.split()[0] for line in requirements("torch")} == {version}
    assert version in GROUPS["gpu_torch"]


def found_nox() -> str:
    """Return the path of nox; skip where there is none."""
    beside = ROOT / ".venv" / ("Scripts" if sys.platform == "win32" else "bin")
    path = shutil.which("nox", path=str(beside)) or shutil.which("nox")
    if path is None:
        pytest.skip("nox is not installed")
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but what sessions read, its environment behind a link."""
    home = tmp_path / "checkout"
    shutil.copytree(LOCKS, home / "harness" / "environments")
    for name in ("noxfile.py", "pyproject.toml"):
        shutil.copy(ROOT / name, home)
    other = tmp_path / "elsewhere" / "core"
    other.mkdir(parents=True)
    (other / "treasure").write_text("", "utf-8")
    (home / ".envs").symlink_to(tmp_path / "elsewhere")
    return home


def test_an_environment_behind_a_link_is_never_emptied(checkout: Path) -> None:
    done = subprocess.run(
        [found_nox(), "-s", "environments", "--", "core"],
        cwd=checkout,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "got a link to" in done.stderr and "remove the link" in done.stderr
    assert (checkout.parent / "elsewhere" / "core" / "treasure").exists()
