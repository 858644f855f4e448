"""Frozen trajectories: what every recorded case gave before a rewrite, to the bit.

``frozen/BACKEND.json.xz`` holds, for each execution mode and behaviour (strict or
default), the trajectory of each case that the backend can replay: every quantity after
every step, and the class of the error that ended it, if one did. Equal trajectories
are stored once::

    {"trajectories": {DIGEST: {"error": CLASS, "steps": [{QUANTITY: [dtype, shape,
     base64 of the bytes]}, ...]}}, "eager default": {CASE: DIGEST}, ...}

``python -m harness frozen parity`` replays them with the code of today and names each
that differs, with the first step and quantity. The files go when the rewrite is done.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import HarnessError
from harness.parity import drivers
from harness.parity.cases import FOUND, GOLDEN, Case, read_cases
from harness.parity.drivers.protocol import Driver
from harness.parity.replay import replay_states, settled_before
from harness.processes.child import unsearched
from harness.processes.children import Children, run_jobs, run_lines
from lockstep import registry

FOLDER = Path(__file__).parent / "frozen"
BEHAVIOURS = ("strict", "default")

Trajectory = Mapping[str, Any]
OnCase = Callable[[str], None]


class Choice(NamedTuple):
    """What is replayed; an empty selection means all."""

    backends: Sequence[str] = ()
    modes: Sequence[str] = ()
    behaviours: Sequence[str] = ()
    families: Sequence[str] = ()
    case: str | None = None


def cases_of(choice: Choice) -> dict[str, Case]:
    """Return the chosen cases by name; those of ``found`` begin with its name.

    Raises:
        HarnessError: there is no such case or family.
    """
    cases = {
        case.id if folder == GOLDEN else f"{folder.name}/{case.id}": case
        for folder in (GOLDEN, FOUND)
        for case in read_cases(folder)
        if not choice.families or case.family in choice.families
    }
    if choice.case is not None:
        cases = {name: case for name, case in cases.items() if name == choice.case}
    if not cases:
        wanted = choice.case or ", ".join(choice.families)
        raise HarnessError(
            f"frozen parity: expected a recorded case or family, got {wanted!r}; "
            "`python -m harness parity` lists them."
        )
    return cases


def replayed(choice: Choice, on_case: OnCase) -> dict[str, dict[str, Any]]:
    """Replay the chosen cases; return the content of a file for each backend."""
    names = list(cases_of(choice))
    jobs = [
        (backend, mode, behaviour)
        for backend in choice.backends or registry.BACKENDS
        for mode in registry.find(backend).modes
        for behaviour in choice.behaviours or BEHAVIOURS
        if not choice.modes or mode in choice.modes
        if behaviour == "default" or registry.find(backend).has_strict
    ]
    if not jobs:
        raise HarnessError(
            f"frozen parity: expected a mode of the backends, got {choice.modes!r}; "
            "leave --mode out for all."
        )
    contents: dict[str, dict[str, Any]] = {}

    def run(children: Children, job: tuple[str, str, str]) -> None:
        backend, mode, behaviour = job
        content = contents.setdefault(backend, {"trajectories": {}})
        index = content.setdefault(f"{mode} {behaviour}", {})

        def take(line: str) -> None:
            name, trajectory = json.loads(line)
            if trajectory is not None:
                text = json.dumps(trajectory, sort_keys=True).encode()
                index[name] = digest = hashlib.sha256(text).hexdigest()[:16]
                content["trajectories"][digest] = trajectory
            on_case(f"{backend} {mode} {behaviour} {name}")

        status, errors = run_lines(
            "harness.parity.frozen", job, "\n".join(names), take, children
        )
        if status:
            raise HarnessError(f"{' '.join(job)}: {(errors.splitlines() or ['?'])[-1]}")

    run_jobs(jobs, run)
    return contents


def record(backends: Sequence[str], on_case: OnCase) -> list[Path]:
    """Freeze all trajectories of today for these backends; return the files."""
    FOLDER.mkdir(exist_ok=True)
    paths = []
    for backend, content in replayed(Choice(backends), on_case).items():
        text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        paths.append(FOLDER / f"{backend}.json.xz")
        paths[-1].write_bytes(lzma.compress(text, preset=9))
    return paths


def compare(choice: Choice, on_case: OnCase) -> Iterator[tuple[str, int, list[str]]]:
    """Yield backend, mode and behaviour, how many are equal, and a line for each other.

    Raises:
        HarnessError: nothing was frozen for a backend.
    """
    for backend, content in replayed(choice, on_case).items():
        path = FOLDER / f"{backend}.json.xz"
        if not path.is_file():
            raise HarnessError(
                f"{path.name}: expected frozen trajectories, got no such file; "
                "record them before the rewrite with `harness frozen parity --record`."
            )
        frozen = json.loads(lzma.decompress(path.read_bytes()))
        whole = not (choice.modes or choice.behaviours)
        for part in dict.fromkeys([*content, *(frozen if whole else ())]):
            if part == "trajectories":
                continue
            before, after = frozen.get(part, {}), content.get(part, {})
            equal, lines = 0, []
            for name in cases_of(choice):
                if before.get(name) != after.get(name):
                    old = frozen["trajectories"].get(before.get(name))
                    new = content["trajectories"].get(after.get(name))
                    lines.append(f"{name}: {difference(old, new)}")
                else:
                    equal += name in after
            yield f"{backend} {part}", equal, lines


def difference(before: Trajectory | None, after: Trajectory | None) -> str:
    """Return in words where two trajectories first differ."""
    if before is None or after is None:
        return "was not frozen" if before is None else "is not replayed any more"
    steps: Any = zip_longest(before["steps"], after["steps"], fillvalue={})
    for number, (old, new) in enumerate(steps, 1):
        for quantity in {**old, **new}:
            if old.get(quantity) != new.get(quantity):
                return f"{quantity} differs after step {number}"
    return f"ended with {after['error']}, before with {before['error']}"


def trajectory_of(case: Case, driver: Driver) -> Trajectory | None:
    """Replay a case; return None if the backend cannot express it."""
    if settled_before(case, driver) is not None:
        return None
    states, error = replay_states(case, driver)
    return {
        "error": None if error is None else type(error).__name__,
        "steps": [
            {
                name: [
                    str(value.dtype),
                    list(value.shape),
                    base64.b64encode(value.tobytes()).decode(),
                ]
                for name, value in state.items()
            }
            for state in states
        ],
    }


def main(arguments: list[str]) -> None:
    """Replay the cases named on standard input in the mode that arguments give."""
    backend, mode, behaviour = arguments
    cases = cases_of(Choice())
    with unsearched():
        drivers.load(backend, mode, behaviour == "strict").close()
    for name in filter(None, sys.stdin.read().split("\n")):
        with closing(drivers.load(backend, mode, behaviour == "strict")) as driver:
            print(json.dumps([name, trajectory_of(cases[name], driver)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
