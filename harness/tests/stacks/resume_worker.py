"""Record or resume the runs of backends; its arguments are ACT FOLDER WHEN BACKEND ...

``record`` runs every stack without a break, saves it in the ``middle`` of the run or
before ``every`` step, and writes what the state was later. ``resume``, in a process of
its own, goes on from what was saved and prints what came out otherwise, as JSON:
backend -> stack -> sentences.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.tests.stacks.run import STEPS
from harness.tests.stacks.savers import SAVERS, Saver
from lockstep.registry import load
from lockstep.tests.wrappers import STACKS, lacks

TO_THE_END = 30
"""From this step a new run goes on to its end. From the others a run that was used for
another goes on for one step: it must forget what it was."""

ENDS = {
    "middle": {16: 21},
    "every": {step: step + 1 for step in range(STEPS)} | {TO_THE_END: STEPS},
}
"""Step before which a run is saved -> step before which the resumed run ends. The steps
16 to 20 have zeros, an absent gradient, an overflow and sparse gradients."""


def record(saver: Saver, stack: str, folder: Path, ends: dict[int, int]) -> None:
    """Run a stack; write its state where resumed runs will end."""
    run, states = saver.start(stack), {}
    for step in range(max(ends.values())):
        if step in ends:
            saver.save(run, folder / f"{step}")
        run.advance(step)
        if step + 1 in ends.values():
            states[step + 1] = saver.snapshot(run)
    saver.close(run)
    (folder / "states.json").write_text(json.dumps(states))


def resume(saver: Saver, stack: str, folder: Path, ends: dict[int, int]) -> list[str]:
    """Go on from each saved step; return what differs."""
    states, found = json.loads((folder / "states.json").read_text()), []
    run = saver.start(stack)
    for step, end in ends.items():
        if step == TO_THE_END and saver.starts_anew:
            run = saver.start(stack)
        saver.restore(run, folder / f"{step}")
        for later in range(step, end):
            run.advance(later)
        got, expected = saver.snapshot(run), states[str(end)]
        found += [
            f"{step} -> {end}: {name}"
            for name in {**expected, **got}
            if got.get(name) != expected.get(name)
        ]
    saver.close(run)
    return found


def main(act: str, folder: Path, when: str, *backends: str) -> None:
    """Record or resume the stacks of some backends."""
    results: dict[str, dict[str, list[str]]] = {}
    for backend in backends:
        saver, found = SAVERS[backend](), results.setdefault(backend, {})
        names = load(backend.partition(" ")[0])
        stacks = [stack for stack in STACKS if not lacks(names, stack)]
        for number, stack in enumerate(stacks):
            place = folder / backend / str(number)
            if act == "record":
                place.mkdir(parents=True)
                record(saver, stack, place, ENDS[when])
            else:
                found[stack] = resume(saver, stack, place, ENDS[when])
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
