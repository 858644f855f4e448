"""Processes that have imported torch and done nothing else.

An import of torch takes seconds. A server does it once for all tests of a process of
pytest and forks: what it forks has no tensor, thread or group of ranks yet.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import BaseContext

__all__ = ["fresh_processes"]

IMPORTED = [
    "pytest",
    "torch",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
]


def fresh_processes() -> BaseContext:
    """Return how such processes are started.

    Each imports torch itself where a process with other libraries may not be forked.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context
