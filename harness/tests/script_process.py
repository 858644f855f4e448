"""A process that runs one script after the other, so that they share the imports.

``python -m harness.tests.script_process torch`` imports torch once. It then reads a
``Request`` from each line of its standard input, runs its script as a program and
answers with a line of JSON. Lockstep is imported anew for every script: one that
forgets an import fails, as it would for a reader. A script that is to be alone runs in
a fork, which has imported torch and done nothing else.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.processes.child import end_with

ROOT = Path(__file__).resolve().parents[2]
OURS = ("lockstep", "harness")
"""Packages that every script imports anew."""


class Request(NamedTuple):
    """A script, its arguments, the folder it runs in, and whether it may see ours.

    What a script finds is itself, Lockstep and what is installed; a script of a test
    also finds the harness. One that is ``alone`` has a process that no other script
    uses; a process is asked for such scripts only, or for none.
    """

    script: str
    arguments: Sequence[str] = ()
    folder: str = str(ROOT)
    with_harness: bool = False
    alone: bool = False


def main(frameworks: Sequence[str]) -> None:
    """Import the frameworks, then answer each line."""
    for framework in frameworks:
        importlib.import_module(framework)
    path = list(sys.path)
    for line in sys.stdin:
        request = Request(*json.loads(line))
        forget_ours()
        if not request.alone:
            forget(frameworks)
        ours = [ROOT / "impls", *[ROOT] * request.with_harness]
        own = [str(Path(request.script).parent), *map(str, ours)]
        sys.path[:] = [*own, *filter(is_installed, path)]
        sys.argv[:] = [request.script, *request.arguments]
        os.chdir(request.folder)
        found = (outcome_alone if request.alone else outcome)(request.script)
        print(json.dumps(found), flush=True)


def is_installed(folder: str) -> bool:
    """Tell whether a folder of ``sys.path`` belongs to Python or its environment."""
    return folder.startswith((sys.prefix, sys.base_prefix))


def forget_ours() -> None:
    """Let the next script import Lockstep anew, and the harness if it may see it."""
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]


def forget(frameworks: Sequence[str]) -> None:
    """Undo what a script may leave behind in a framework for the next one."""
    # TensorFlow imports Keras too; clearing it would start TensorFlow's eager mode.
    if "keras" in frameworks and (keras := sys.modules.get("keras")):
        keras.utils.clear_session()
        keras.mixed_precision.set_dtype_policy("float32")
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.compat.v1.reset_default_graph()
        tensorflow.config.run_functions_eagerly(False)
    if torch := sys.modules.get("torch"):
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def outcome(script: str) -> dict[str, str]:
    """Run a script; return what it printed, and the error that ended it."""
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException:
            error = traceback.format_exc()
    return {"printed": printed.getvalue(), "error": error}


def outcome_alone(script: str) -> dict[str, str]:
    """Run a script in a fork of this process, to its end; return the same of it."""
    if sys.platform != "linux":
        # Elsewhere a process with such libraries may not be forked.
        return outcome(script)
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as error:
        parent = os.getpid()
        fork = os.fork()
        if fork == 0:
            os.dup2(printed.fileno(), 1)
            os.dup2(error.fileno(), 2)
            end_with(parent)
            runpy.run_path(script, run_name="__main__")
            sys.exit()
        status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        for file in (printed, error):
            file.seek(0)
        told = f"status {status}: {error.read().decode()[-4000:]}" if status else ""
        return {"printed": printed.read().decode(), "error": told}


if __name__ == "__main__":
    main(sys.argv[1:])
