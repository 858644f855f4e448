"""Checkpoints that a release wrote load in this one, and training goes on from them."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Collection
from pathlib import Path

import pytest

from harness.composition.tests.archived import KINDS
from harness.composition.wrappers import FEW_STACKS, STACKS
from harness.tests.script_process import Request
from harness.tests.shared_processes import UNCHANGED, Processes

WORKER = Path(__file__).with_name("archived.py")
ARCHIVES = Path(__file__).parent.parent / "archives"
*OLDER, LAST = sorted(folder.name for folder in ARCHIVES.iterdir())
SLOW = ("tf eager", "tf graph", "keras3", "keras3 file")
"""Kinds of which few stacks are loaded; the soak loads all."""
RELEASES = [*(pytest.param(name, marks=pytest.mark.soak) for name in OLDER), LAST]
NEEDS = {"pytorch": "torch", "tf": "tensorflow", "keras3": "keras"}
each_release = pytest.mark.parametrize("release", RELEASES)
each_kind = pytest.mark.parametrize("kind", KINDS)
CASES = [
    pytest.param(
        *(release, "read", kind),
        marks=[pytest.mark.soak] * (release != LAST or kind in SLOW),
    )
    for release in (*OLDER, LAST)
    for kind in KINDS
] + [(LAST, "few", kind) for kind in SLOW]


def archive(release: str, kind: str) -> Path:
    return ARCHIVES / release / f"{kind.replace(' ', '-')}.zip"


def differences(
    release: str, act: str, kind: str, processes: Processes
) -> dict[str, list[str]]:
    """Load an archive in another process: mode and stack -> what differs."""
    needs = NEEDS[kind.split()[0]]
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"needs {needs}")
    (group,) = [group for group in UNCHANGED if needs in group.split()]
    arguments = [act, kind, str(archive(release, kind))]
    request = Request(str(WORKER), arguments, with_harness=True)
    return json.loads(processes.output_of(group, group.split(), request))


def archived(release: str, kind: str, mode: str = "default") -> set[str]:
    """Return the stacks of a mode in an archive."""
    with zipfile.ZipFile(archive(release, kind)) as file:
        names = json.loads(file.read("stacks.json")).values()
    return {name.partition(": ")[2] for name in names if name.startswith(f"{mode}: ")}


def of_layers_in(archived: set[str], stacks: Collection[str]) -> set[str]:
    """Return the stacks without a layer that the release did not have."""
    layers = set(" ".join(archived).split())
    return {stack for stack in stacks if set(stack.split()) <= layers}


@each_release
@each_kind
def test_an_archive_holds_every_stack(release: str, kind: str) -> None:
    stacks = archived(release, kind)
    assert stacks == of_layers_in(stacks, STACKS)
    assert len(stacks) >= 34
    assert len(archived(release, kind, "strict")) >= 13


@pytest.mark.parametrize(("release", "act", "kind"), CASES)
def test_the_checkpoints_of_a_release_load_and_go_on(
    release: str, act: str, kind: str, processes: Processes
) -> None:
    found = differences(release, act, kind, processes)
    few = of_layers_in(archived(release, kind), FEW_STACKS)
    assert few <= {name.partition(": ")[2] for name in found}
    assert {name: differs for name, differs in found.items() if differs} == {}
