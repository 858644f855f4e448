"""A process that runs one script after the other, so that they share the imports.

``python -m harness.tests.script_process torch`` imports torch once. It then reads a
``Request`` from each line of its standard input, runs its script as a program and
answers with a line of JSON. Lockstep is imported anew for every script: one that
forgets an import fails, as it would for a reader.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.processes.child import unsearched

ROOT = Path(__file__).resolve().parents[2]
OURS = ("lockstep", "harness")
"""Packages that every script imports anew."""


class Request(NamedTuple):
    """A script, its arguments, the folder it runs in, and whether it may see ours.

    What a script finds is itself, Lockstep and what is installed; a script of a test
    also finds the harness.
    """

    script: str
    arguments: Sequence[str] = ()
    folder: str = str(ROOT)
    with_harness: bool = False


def main(frameworks: Sequence[str]) -> None:
    """Import the frameworks, then answer each line."""
    # Keras collects garbage after every script, and would search all imported modules.
    with unsearched():
        for framework in frameworks:
            importlib.import_module(framework)
    path = list(sys.path)
    for line in sys.stdin:
        request = Request(*json.loads(line))
        forget(frameworks)
        ours = [ROOT / "impls", *[ROOT] * request.with_harness]
        own = [str(Path(request.script).parent), *map(str, ours)]
        sys.path[:] = [*own, *filter(is_installed, path)]
        sys.argv[:] = [request.script, *request.arguments]
        os.chdir(request.folder)
        print(json.dumps(outcome(request.script)), flush=True)


def is_installed(folder: str) -> bool:
    """Tell whether a folder of ``sys.path`` belongs to Python or its environment."""
    return folder.startswith((sys.prefix, sys.base_prefix))


def forget(frameworks: Sequence[str]) -> None:
    """Undo what a script may leave behind for the next one."""
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]
    # TensorFlow imports Keras too; clearing it would start TensorFlow's eager mode.
    if "keras" in frameworks and (keras := sys.modules.get("keras")):
        keras.utils.clear_session()
        keras.mixed_precision.set_dtype_policy("float32")
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.compat.v1.reset_default_graph()
        tensorflow.config.run_functions_eagerly(False)
        # Strategies number their collectives alike, and TensorFlow remembers the shapes
        # of each. Its own tests separate strategies in the same way.
        tensorflow.distribute.MirroredStrategy._collective_key_base += 100_000
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


if __name__ == "__main__":
    main(sys.argv[1:])
