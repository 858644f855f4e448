"""Record or resume the runs of backends.

Its arguments are ``ACT FOLDER WHICH BACKEND ...``.

``record`` runs stacks for 50 steps without a break, saves before ``all`` or before a
``few`` of them, and writes what the state was. ``resume``, in a process of its own,
goes on from every one of these and prints what came out otherwise, as JSON: backend ->
stack -> sentences.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from harness.composition.run import STEPS
from harness.composition.tests.savers import SAVERS, Saver, Snapshot
from harness.composition.wrappers import FEW_STACKS, STACKS

TO_THE_END = (30,)
"""Steps from which a run that is new goes on to its end, over all that can happen.

From the others a run that was used for another goes on for one step: it must forget
what it was."""

SAVED = {"all": range(STEPS), "few": (0, 5, 8, 19, *TO_THE_END, 33, 49)}
"""Steps before which a run is saved: few are the first and the last one, and those in
and after overflows, after absent gradients and after zeros."""

FEW = ("keras3", "tf eager", "tf graph", "reference")
"""Backends that run few of the stacks if few of the steps are saved: all are slow but
the reference, whose state is pickled as a whole."""


def stacks_of(driver: str, which: str) -> Sequence[str]:
    """Return the stacks that a backend runs."""
    return FEW_STACKS if which == "few" and driver in FEW else STACKS


def record(saver: Saver, stack: str, folder: Path, saved: Collection[int]) -> None:
    """Run a stack to its end; look at the state where resumed runs will end."""
    run, seen = saver.start(stack), {}
    ends = set(map(end_of, saved))
    for step in range(STEPS):
        if step in saved:
            saver.save(run, folder / f"{step}")
        run.advance(step)
        if step + 1 in ends:
            seen[step + 1] = saver.snapshot(run)
    saver.close(run)
    (folder / "seen.json").write_text(json.dumps(seen))


def end_of(step: int) -> int:
    """Return before which step a run ends that goes on from this one."""
    return STEPS if step in TO_THE_END else step + 1


def resume(saver: Saver, stack: str, folder: Path, saved: Collection[int]) -> list[str]:
    """Go on from each saved step; say what differs."""
    seen, found = json.loads((folder / "seen.json").read_text()), []
    run = saver.start(stack)
    for step in saved:
        if step in TO_THE_END and saver.starts_anew:
            run = saver.start(stack)
        saver.restore(run, folder / f"{step}")
        last = end_of(step)
        for later in range(step, last):
            run.advance(later)
        got, expected = saver.snapshot(run), seen[str(last)]
        found += [f"{step} -> {last}: {name}" for name in differing(got, expected)]
    saver.close(run)
    return found


def differing(got: Snapshot, expected: Snapshot) -> list[str]:
    """Return the names of what is not the same in both."""
    names = [*expected, *(name for name in got if name not in expected)]
    return [name for name in names if got.get(name) != expected.get(name)]


def main(act: str, folder: Path, which: str, *backends: str) -> None:
    """Record or resume the stacks of some backends."""
    saved = SAVED[which]
    results: dict[str, dict[str, list[str]]] = {}
    for driver in backends:
        saver, found = SAVERS[driver](), results.setdefault(driver, {})
        for number, stack in enumerate(stacks_of(driver, which)):
            place = folder / driver / str(number)
            if act == "record":
                place.mkdir(parents=True)
                record(saver, stack, place, saved)
            else:
                found[stack] = resume(saver, stack, place, saved)
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
