"""The scripts that the site shows run, and print what the site says they print."""

from __future__ import annotations

import ast
import importlib.util
import secrets
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from harness.processes.children import ROOT
from harness.processes.environment import child_variables
from harness.tests.script_process import Request
from harness.tests.shared_processes import SECONDS, UNCHANGED, Processes

EXAMPLES = ROOT / "docs" / "examples"
SCRIPTS = sorted(EXAMPLES.rglob("*.py"))
FOR_RANKS = [script for script in SCRIPTS if script.parent.name == "ranks"]
"""Those that ``torchrun`` starts once for each rank."""
TORCHRUN = [
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--local-addr=127.0.0.1",
    "--nproc-per-node=2",
    str(ROOT / "harness/tests/example_rank.py"),
]
ALONE = [
    EXAMPLES / name
    for name in (
        "closures_tf.py",
        "cluster_tf.py",
        "workers_ray.py",
        "workers_ray_keras3.py",
    )
]
"""Those that start others, or change TensorFlow for good."""
FRAMEWORKS = {"keras", "ray", "torch", "tensorflow"}
CLUSTER = {
    "RAY_ADDRESS": "local",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without it Ray listens on the address of the machine.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""Variables with which an example starts its own Ray, on loopback, with a token."""


def frameworks_of(script: Path) -> set[str]:
    """Return the frameworks that a script imports."""
    tree = ast.walk(ast.parse(script.read_text("utf-8")))
    imports = [node for node in tree if isinstance(node, ast.Import)]
    return {alias.name for node in imports for alias in node.names} & FRAMEWORKS


def slow_in_folders(scripts: list[Path]) -> list[Any]:
    """Mark scripts of a folder as slow, but for the first of each framework."""
    chosen, first = [], set[tuple[Path, str]]()
    for script in scripts:
        place = script.parent, min(frameworks_of(script), default="")
        is_like_another = script.parent != EXAMPLES and place in first
        first.add(place)
        marks = [pytest.mark.slow] * is_like_another
        chosen.append(pytest.param(script, marks=marks, id=title(script)))
    return chosen


def title(script: Path) -> str:
    return script.relative_to(EXAMPLES).as_posix()


def require_frameworks(script: Path) -> None:
    """Skip where a framework of a script is not installed."""
    for framework in frameworks_of(script):
        if importlib.util.find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")


def run_alone(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python with a command in a process of its own."""
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**child_variables(), **CLUSTER, "PYTHONPATH": str(ROOT / "impls")},
    )


@pytest.mark.parametrize(
    "script", slow_in_folders(sorted({*SCRIPTS} - {*FOR_RANKS} - {*ALONE}))
)
def test_example_prints_what_the_site_shows(script: Path, processes: Processes) -> None:
    require_frameworks(script)
    needed = frameworks_of(script)
    group = next((name for name in UNCHANGED if needed & set(name.split())), "")
    printed = processes.output_of(group, group.split(), Request(str(script)))
    assert printed == script.with_suffix(".out").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("script", ALONE, ids=title)
def test_example_of_its_own_process_prints_what_the_site_shows(script: Path) -> None:
    require_frameworks(script)
    done = run_alone(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == script.with_suffix(".out").read_text("utf-8")


@pytest.fixture(scope="module")
def ranks() -> subprocess.CompletedProcess[str]:
    """What two ranks print that run one script after the other."""
    require_frameworks(FOR_RANKS[0])
    with ExitStack() as sockets:
        free = [sockets.enter_context(socket()) for _ in FOR_RANKS]
        for one in free:
            one.bind(("127.0.0.1", 0))
        ports = [str(one.getsockname()[1]) for one in free]
    pairs = zip(ports, FOR_RANKS, strict=True)
    return run_alone(*TORCHRUN, *(word for pair in pairs for word in pair))


@pytest.mark.slow
@pytest.mark.parametrize("script", FOR_RANKS, ids=title)
def test_two_ranks_print_what_the_site_shows(
    script: Path, ranks: subprocess.CompletedProcess[str]
) -> None:
    last = script == FOR_RANKS[-1]
    assert f"{script}\n" in ranks.stdout, ranks.stderr
    assert ranks.returncode == 0 or not last, ranks.stderr
    printed = ranks.stdout.partition(f"{script}\n")[2]
    for other in FOR_RANKS:
        printed = printed.partition(f"{other}\n")[0]
    assert printed == script.with_suffix(".out").read_text("utf-8"), ranks.stderr


@pytest.mark.parametrize(
    "example",
    ["agn", "larc", "masters", "multitask", "novograd", "rows", "scaling"],
)
def test_every_backend_prints_the_same_trajectory(example: str) -> None:
    printed = [path.read_text("utf-8") for path in EXAMPLES.glob(f"{example}_*.out")]
    assert len(printed) >= 3
    assert len(set(printed)) == 1
