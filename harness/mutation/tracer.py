"""Record which functions of a backend are entered, here and in child processes.

The folder of a watch has the file ``check``, which is rewritten before each check, and
the file ``entered``. Other processes append the functions that they enter to it. They
import nothing of the harness, since it may not be on their path.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from pathlib import Path
from types import FrameType

CONVERTED = "__autograph_generated_file"
"""Part of the names of the files in which TensorFlow writes converted functions."""

PREFIX = "tf__"
"""Prefix of the names of functions that TensorFlow converts."""


class Tracer:
    """Collects ``PATH:FUNCTION`` for each entered function.

    FUNCTION is the name within the module. An inner function is recorded as the outer
    one. Of a function that TensorFlow has converted, only the name is known, so its
    path is empty.

    Args:
        home: the folder of the backend, with a separator at its end.
    """

    def __init__(self, home: str) -> None:
        self.home = home
        self.entered: set[str] = set()

    def start(self) -> None:
        """Trace this thread and all threads that it starts from now on."""
        # At exit, this module's globals are already gone.
        atexit.register(sys.settrace, None)
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: object) -> None:
        """Record a function that is entered. Its lines are not traced."""
        code = frame.f_code
        file = code.co_filename
        if file.startswith(self.home):
            name = code.co_qualname.split(".<locals>", 1)[0]
            self.note(f"{file[len(self.home) :].replace(os.sep, '/')}:{name}")
        elif CONVERTED in file and code.co_name.startswith(PREFIX):
            self.note(f":{code.co_name[len(PREFIX) :]}")

    def note(self, function: str) -> None:
        """Record a function."""
        self.entered.add(function)


class WritingTracer(Tracer):
    """Appends each entered function to a file, once for each check."""

    def __init__(self, home: str, folder: Path) -> None:
        super().__init__(home)
        self.check, self.file = folder / "check", folder / "entered"
        self.changed = 0

    def note(self, function: str) -> None:
        """Write a function that was not entered before in the current check."""
        changed = self.check.stat().st_mtime_ns
        if changed != self.changed:
            self.changed = changed
            self.entered.clear()
        if function not in self.entered:
            self.entered.add(function)
            with self.file.open("a", encoding="utf-8") as file:
                file.write(f"{function}\n")


def install(folder: str) -> None:
    """Trace this process, which a check has started."""
    home = Path(folder, "home").read_text("utf-8")
    WritingTracer(home, Path(folder)).start()
