"""Two builds of the site from the same results are the same, byte by byte."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from harness.processes import ROOT

MOMENT = "1700000000"
"""A moment for SOURCE_DATE_EPOCH, from which MkDocs takes the date of a build."""


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a folder, by its path in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def build(folder: Path, hash_seed: str) -> dict[str, str]:
    """Build the site in a process of its own; return the digests of its files."""
    variables = {"SOURCE_DATE_EPOCH": MOMENT, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True)
    return digests(folder)


def test_two_builds_are_the_same_to_the_byte(tmp_path: Path) -> None:
    # Sets are in another order in the second process.
    first, second = build(tmp_path / "one", "1"), build(tmp_path / "two", "2")
    assert len(first) > 100
    assert first == second
