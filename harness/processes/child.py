"""Run a module of the harness as a child process that ends when its parent is gone.

``python -m harness.processes.child PARENT MODULE [ARGUMENT ...]`` is ``python -m MODULE
[ARGUMENT ...]`` for the process PARENT. A parent that is killed cannot end its
children; without this they would train on, and a restart would run beside them.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time

__all__ = ["end_with", "main"]

SECONDS = 0.5
"""How often the parent is looked for."""

ORPHANED = 75
"""The exit status of a child whose parent is gone; nobody is left to read it."""


def end_with(parent: int) -> None:
    """End this process soon after the process ``parent`` has ended.

    An orphan gets another parent. Windows keeps the old number, so there it lives on.
    """
    if os.name == "posix":
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(SECONDS)
    # At once: the main thread may be deep inside a framework.
    os._exit(ORPHANED)


def main(parent: str, module: str, *arguments: str) -> None:
    """Watch the parent and run the module under the arguments."""
    end_with(int(parent))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
