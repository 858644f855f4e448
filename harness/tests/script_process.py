"""A process that runs one script after the other, so that they share the imports.

``python -m harness.tests.script_process torch`` imports torch once. It then reads the
path of a script from each line of its standard input, runs it as a program and answers
with a line of JSON. Lockstep is imported anew for every script: one that forgets an
import fails, as it would for a reader.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

IMPLS = str(Path(__file__).resolve().parent.parent.parent / "impls")


def main(frameworks: Sequence[str]) -> None:
    """Import the frameworks, then answer each line."""
    for framework in frameworks:
        importlib.import_module(framework)
    path = list(sys.path)
    for line in sys.stdin:
        script = Path(line.rstrip("\n"))
        forget()
        # What a script finds is itself, Lockstep and what is installed.
        sys.path[:] = [str(script.parent), IMPLS, *filter(is_installed, path)]
        print(json.dumps(outcome(script)), flush=True)


def is_installed(folder: str) -> bool:
    """Tell whether a folder of ``sys.path`` belongs to Python or its environment."""
    return folder.startswith((sys.prefix, sys.base_prefix))


def forget() -> None:
    """Undo what a script may leave behind for the next one."""
    for name in [name for name in sys.modules if name.split(".")[0] == "lockstep"]:
        del sys.modules[name]
    if keras := sys.modules.get("keras"):
        keras.utils.clear_session()
        keras.mixed_precision.set_dtype_policy("float32")
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.config.run_functions_eagerly(False)
    if torch := sys.modules.get("torch"):
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def outcome(script: Path) -> dict[str, str]:
    """Run a script; return what it printed, and the error that ended it."""
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except BaseException:
            error = traceback.format_exc()
    return {"printed": printed.getvalue(), "error": error}


if __name__ == "__main__":
    main(sys.argv[1:])
