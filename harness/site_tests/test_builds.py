"""Two builds of the site from the same results are equal byte by byte."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.processes.children import ROOT

SOME_RESULTS = ("larc", "larc_overhead", "parity", "oracle")
"""An experiment, a benchmark and the other pages' data; all results take minutes."""


def digests(folder: Path) -> dict[str, str]:
    """Return path -> digest of every file of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def moment_of(site: Path) -> int:
    """Return the time of a build in seconds, from the header of a gzip file."""
    return int.from_bytes((site / "sitemap.xml.gz").read_bytes()[4:8], "little")


def build(folder: Path, moment: int) -> dict[str, str]:
    """Build the site in a new process; return the digests of its files."""
    variables = {"SOURCE_DATE_EPOCH": str(moment), "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True)
    return digests(folder)


def test_two_builds_are_the_same_to_the_byte(site: Path, tmp_path: Path) -> None:
    # Sets have another order than in the process that built the site.
    first, second = digests(site), build(tmp_path / "again", moment_of(site))
    assert len(first) > 100
    differing = {
        name for name in {*first, *second} if first.get(name) != second.get(name)
    }
    assert not differing, "nox -s site builds the site anew if its sources have changed"


WRITE = """
import sys
from pathlib import Path
from harness.pages.write import write_pages
write_pages(Path(sys.argv[1]) / "docs", Path(sys.argv[1]) / "results")
"""


def pages(folder: Path, **variables: str) -> dict[str, str]:
    """Write the pages in a new process; return the digests of their files."""
    (folder / "docs").mkdir(parents=True)
    for name in SOME_RESULTS:
        shutil.copytree(ROOT / "results" / name, folder / "results" / name)
    command = [sys.executable, "-c", WRITE, str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True)
    return digests(folder / "docs" / "generated")


def test_pages_depend_on_results_and_sources_alone(tmp_path: Path) -> None:
    # The second process has no Git and another time zone.
    first = pages(tmp_path / "one", PYTHONHASHSEED="1", TZ="UTC-9")
    second = pages(tmp_path / "two", PYTHONHASHSEED="2", TZ="UTC+9", PATH="")
    assert len(first) > 100
    assert first == second
