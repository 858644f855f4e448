"""Import a changed file instead of a module, in a trial and its child processes.

A trial puts its folder on ``PYTHONPATH``. Python imports ``sitecustomize`` from there
in every process that inherits the path, such as the ranks and sessions of a test.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

CUSTOMIZE = """\
# The child may have a path without the harness.
from importlib.util import module_from_spec, spec_from_file_location

spec = spec_from_file_location("in_every_process", {file!r})
module = module_from_spec(spec)
spec.loader.exec_module(module)
module.install({folder!r})
"""


class MutantFinder(MetaPathFinder):
    """Finds the changed file instead of one module."""

    def __init__(self, module: str, file: Path, package: Path | None) -> None:
        self.module, self.file = module, file
        self.folders = None if package is None else [str(package)]

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the changed file's location if this is the changed module."""
        if fullname != self.module:
            return None
        return importlib.util.spec_from_file_location(
            fullname, self.file, submodule_search_locations=self.folders
        )


def install(folder: str) -> None:
    """Import the mutant of a trial's folder from now on, if its task has a module."""
    task: Mapping[str, Any] = json.loads(Path(folder, "task.json").read_text("utf-8"))
    if module := task["module"]:
        package = Path(task["package"]) if task["package"] else None
        sys.meta_path.insert(0, MutantFinder(module, Path(task["file"]), package))


def reach_children(folder: Path, file: str = __file__) -> None:
    """Make child processes of this process import the mutant, too.

    Many tests pass their own environment to ``subprocess``. Its path is extended.

    Args:
        folder: of the trial.
        file: the module whose ``install`` the children call with the folder.
    """
    text = CUSTOMIZE.format(file=file, folder=str(folder))
    (folder / "sitecustomize.py").write_text(text, "utf-8")

    class Popen(subprocess.Popen[Any]):
        def __init__(self, *args: Any, env: Any = None, **options: Any) -> None:
            variables = _with_path(os.environ if env is None else env, folder)
            super().__init__(*args, env=variables, **options)  # type: ignore[call-overload]

    subprocess.Popen = Popen  # type: ignore[misc]
    os.environ.update(_with_path(os.environ, folder))


def _with_path(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return these variables with the folder in front of ``PYTHONPATH``."""
    inherited = variables.get("PYTHONPATH")
    paths = [str(folder), *([inherited] if inherited else [])]
    return {**variables, "PYTHONPATH": os.pathsep.join(paths)}
