"""A worker that knows the toy task, too."""

from __future__ import annotations

import sys
from pathlib import Path

from harness import tasks
from harness.runs import worker

FOLDER = Path(__file__).parent / "tasks"

if __name__ == "__main__":
    tasks.__path__.append(str(FOLDER))
    worker.main(*sys.argv[1:])
