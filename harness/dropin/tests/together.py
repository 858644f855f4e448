"""Old programs that share a process, because TensorFlow takes seconds to import."""

from __future__ import annotations

from pathlib import Path

from harness.dropin.declared import Phase, Program
from harness.dropin.moving import move
from harness.dropin.running import LOCKSTEP, run_phase
from harness.tests.script_process import Request
from harness.tests.shared_processes import Processes

APART = ("agn_cluster", "cluster", "replicas")
"""Programs that start servers or split the devices of their process."""


def printed_by(
    program: Program, phase: Phase, folder: Path, processes: Processes
) -> list[str]:
    """Run one phase in ``folder``; return its lines.

    A second phase has another process than the first, whose files it reads.
    """
    if program.name in APART or phase.status != 0:
        return run_phase(program, phase, LOCKSTEP, folder)
    path = folder / f"{program.name}.py"
    path.write_text(move(program.text), "utf-8")
    place = program.phases.index(phase)
    kind = f"v1, phase {place}" if place else "v1"
    request = Request(str(path), phase.arguments, str(folder))
    return processes.output_of(kind, ["tensorflow"], request).splitlines()
