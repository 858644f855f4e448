"""Run a module of the harness in a fresh process, without output and with a limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from harness.mutation.mutant import ROOT
from harness.processes.environment import child_variables


def run_child(module: str, folder: Path, limit: float | None = None) -> int:
    """Run ``python -m MODULE FOLDER`` and return its exit status.

    The process and its children are killed before this call returns.

    Raises:
        subprocess.TimeoutExpired: it took more than ``limit`` seconds.
    """
    watched = ["harness.processes.child", str(os.getpid()), module, str(folder)]
    child = subprocess.Popen(
        [sys.executable, "-m", *watched],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**child_variables(), "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
    )
    try:
        return child.wait(limit)
    finally:
        with contextlib.suppress(ProcessLookupError):
            if os.name == "posix":
                os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.wait()
