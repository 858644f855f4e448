"""Draw the mutants of a backend, try those without a result, and record the results."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.mutation.digests import current_digest
from harness.mutation.mutant import ROOT, Mutant
from harness.mutation.reach import read_reach
from harness.mutation.summary import unexplained
from harness.mutation.trials import Trials
from harness.processes.environment import child_variables
from harness.records.files import RESULTS, Log, read_lines
from lockstep.errors import sentence

FOLDER = RESULTS / "mutants"

SIZES = {"reference": 0}
"""Backend -> number of mutants to draw; 0 means all."""

SIZE = 300
"""Number of mutants to draw for each other backend."""

SEED = 1

TOGETHER = 10
"""Number of trials that are recorded together, after their killers passed unmutated."""


@dataclass(frozen=True)
class Request:
    """Which mutants to try, and how.

    Attributes:
        backend: whose mutants are tried.
        lister: path of a Python that has Cosmic Ray.
        minutes: after this time no further mutant is started.
        count: largest number of mutants to try; None for no limit.
        folder: of the results.
        again: whether survivors without a reason are tried again, before the others.
        jobs: number of parallel trials.
    """

    backend: str
    lister: Path
    minutes: float
    count: int | None = None
    folder: Path = FOLDER
    again: bool = False
    jobs: int = 1


def run_mutants(
    request: Request,
    report: Callable[[Mapping[str, Any]], None],
    progress: Callable[[str], None] = lambda _: None,
) -> int:
    """Try mutants that have no result yet; return how many remain.

    Each line of the results file is written whole. After an interruption the same
    command resumes, and at most a few trials are lost. ``report`` is called with each
    line. ``progress`` gets messages about the tracing before the first trial.
    """
    drawn = _drawn(request)
    with Log(request.folder / f"{request.backend}.jsonl") as log:
        lines = read_lines(log.path)
        done = {line["id"] for line in lines}
        alive = unexplained(lines) if request.again else set()
        pending = [mutant for mutant in drawn if mutant.id in alive]
        pending += [mutant for mutant in drawn if mutant.id not in done]
        left = len(pending)
        if not pending:
            return left
        reach = read_reach(request.backend, request.jobs, progress)
        trials = Trials(request.backend, lines, reach)
        end = time.monotonic() + 60 * request.minutes
        begun = itertools.takewhile(
            lambda _: time.monotonic() <= end, pending[: request.count]
        )
        for batch in _batches(trials, begun, request.jobs):
            for line in batch:
                log.append(line)
                report(line)
                left -= 1
    return left


def _batches(
    trials: Trials, mutants: Iterable[Mutant], jobs: int
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Try mutants in ``jobs`` parallel trials; yield the lines of a few at a time.

    The next mutant is started when a trial ends. Trials that are already running are
    completed.
    """
    # Imported here: the environment that draws pages does not have it.
    from joblib import Parallel, delayed

    parallel = Parallel(
        jobs,
        backend="threading",
        return_as="generator_unordered",
        pre_dispatch=jobs,
        batch_size=1,
    )
    lines: list[Mapping[str, Any]] = []
    for line in parallel(delayed(trials.record)(mutant) for mutant in mutants):
        lines.append(line)
        if len(lines) == TOGETHER:
            trials.require_sound(lines)
            yield lines
            lines = []
    trials.require_sound(lines)
    yield lines


def _drawn(request: Request) -> list[Mutant]:
    """List the mutants of a backend, and write their number to a file."""
    backend, size = request.backend, SIZES.get(request.backend, SIZE)
    command = [str(request.lister), "-m", "harness.mutation.listing"]
    done = subprocess.run(
        [*command, backend, str(size), str(SEED)],
        cwd=ROOT,
        env={**child_variables(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode or not done.stdout:
        exit_status = f"exit status {done.returncode} and nothing else"
        got = done.stderr.strip().splitlines()[-1:] or [exit_status]
        remedy = "run it as nox -s mutants, which makes an environment with Cosmic Ray"
        expected = "a list from Cosmic Ray"
        text = sentence(f"mutants of {backend}", expected, got[0], remedy)
        raise HarnessError(text)
    head, *places = map(json.loads, done.stdout.splitlines())
    drawn = {**head, "drawn": len(places), "seed": SEED}
    request.folder.mkdir(parents=True, exist_ok=True)
    path = request.folder / f"{backend}.json"
    path.write_text(json.dumps(drawn, indent=1) + "\n", "utf-8")
    digests = {path: current_digest(path) for path in {p["path"] for p in places}}
    return [
        Mutant.from_json({**place, "digest": digests[place["path"]]})
        for place in places
    ]
