"""Run a module of the harness as a child process that exits when its parent is gone.

``python -m harness.processes.child PARENT MODULE [ARGUMENT ...]`` is ``python -m MODULE
[ARGUMENT ...]`` for the process PARENT. A killed parent cannot stop its children.
Without this module they would continue to train while a restart runs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import sys
import threading
import time
from collections.abc import Iterator

SECONDS = 0.5
"""Seconds between two checks of the parent."""

ORPHANED = 75
"""Exit status of a child whose parent is gone. Nobody reads it any more."""


def main(parent: str, module: str, *arguments: str) -> None:
    """Watch the parent and run the module with the arguments."""
    # Windows keeps the number of a parent that is gone, so there nothing is watched.
    if os.name == "posix":
        threading.Thread(target=_watch, args=(int(parent),), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _watch(parent: int) -> None:
    """Exit soon after the parent: an orphaned process gets another one."""
    while os.getppid() == parent:
        time.sleep(SECONDS)
    # Immediately: the main thread may be inside a long call of a framework.
    os._exit(ORPHANED)


@contextlib.contextmanager
def unsearched() -> Iterator[None]:
    """Import a framework without searching its modules for garbage, then or later.

    They hold a million objects. Each search takes half a second, and the imports alone
    cause several.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


if __name__ == "__main__":
    main(*sys.argv[1:])
