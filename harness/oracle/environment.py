"""The environment of the originals: TensorFlow 1.15 with an installed Python 3.7."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = ROOT / ".envs/oracle"
REQUIREMENTS = ROOT / "harness/environments/oracle.txt"
VARIABLE = "LOCKSTEP_PYTHON37"


class MissingOracleError(Exception):
    """The originals cannot be run here. The text is one sentence with the reason."""


def oracle_python(home: Path = HOME) -> Path:
    """Return the environment's interpreter. Build it unless its stamp is current.

    Raises:
        MissingOracleError: Python 3.7 was not found, or TensorFlow 1.15 not installed.
    """
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    base = find_python(os.environ)
    if base is None:
        raise MissingOracleError(
            "no Python 3.7 on PATH or among pyenv's versions; install one, or set "
            f"{VARIABLE} to its path"
        )
    recipe = f"{base} {home.resolve()}".encode() + REQUIREMENTS.read_bytes()
    stamp, current = home / "stamp", hashlib.sha256(recipe).hexdigest()
    if not (stamp.exists() and stamp.read_text() == current and python.exists()):
        _build(base, home, python)
        # Written last: after an interrupted install the environment is built again.
        stamp.write_text(current)
    return python


def find_python(variables: Mapping[str, str]) -> Path | None:
    """Return a Python 3.7: from the variable, from PATH, or from pyenv."""
    return next((path for path in _candidates(variables) if _is_37(path)), None)


def _candidates(variables: Mapping[str, str]) -> Iterator[Path]:
    if variables.get(VARIABLE):
        yield Path(variables[VARIABLE])
    path = shutil.which("python3.7", path=variables.get("PATH", ""))
    if path:
        yield Path(path)
    home = variables.get("HOME", "")
    for root in (variables.get("PYENV_ROOT"), f"{home}/.pyenv" if home else None):
        if root:
            yield from sorted(Path(root).glob("versions/3.7*/bin/python3.7"))


def _is_37(path: Path) -> bool:
    """Ask the interpreter itself, since a shim of pyenv may not work."""
    ask = "import sys; print(sys.version_info[:2] == (3, 7))"
    try:
        command = [str(path), "-c", ask]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "True"


def _build(base: Path, home: Path, python: Path) -> None:
    """Build the environment from scratch."""
    if home.resolve() != home.absolute():
        raise MissingOracleError(
            f"{home} is a link to {home.resolve()}, which was made for another path "
            "and stays as it is; remove the link"
        )
    print(f"Making {home.name}; this is done once and takes a few minutes.", flush=True)
    (home / "stamp").unlink(missing_ok=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [str(base), "-m", "venv", "--clear", str(home)],
        [str(python), *install, "--require-hashes", "-r", str(REQUIREMENTS)],
        [str(python), "-c", "import tensorflow.contrib.opt"],
    ):
        variables = quiet_variables()
        done = subprocess.run(command, capture_output=True, text=True, env=variables)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no error was printed"])[-1]
            raise MissingOracleError(f"TensorFlow 1.15 could not be installed: {last}")


def quiet_variables() -> dict[str, str]:
    """Return variables for a child of another Python, without those of this one."""
    others = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {**others, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONDONTWRITEBYTECODE": "1"}
