"""``python -m harness.nets``: write snapshots, or compare a parity report with one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.errors import HarnessError
from harness.nets import nestings, parity, sentences, signatures, snapshots
from harness.processes.children import ROOT
from lockstep.messages.errors import LockstepError, sentence, unknown_name

__all__ = ["TAKEN", "main"]

TAKEN = {
    "nestings": nestings.take,
    "parity": parity.take,
    "signatures": signatures.take,
}


def main(arguments: Sequence[str]) -> int:
    """Write the named snapshots, or compare a fresh parity report.

    Args:
        arguments: ``write`` and names, or ``compare`` and a file written by ``harness
            parity --report``.

    Returns:
        The exit status: 1 if there is a difference, or an error in the arguments.
    """
    try:
        match arguments:
            case ["write", *names] if names:
                return _write(names)
            case ["compare", report]:
                return _compare(Path(report))
        expected, got = "write NAME or compare REPORT", " ".join(arguments)
        remedy = "give one of the two"
        raise HarnessError(sentence("harness.nets", expected, got or "nothing", remedy))
    except (HarnessError, LockstepError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


def _write(names: Sequence[str]) -> int:
    known = [*TAKEN, sentences.NAME]
    for name in names:
        if name not in known:
            raise unknown_name("snapshot", name, known)
    for name in names:
        if name in TAKEN:
            snapshots.write(name, TAKEN[name]())
        elif status := _write_sentences():
            return status
        print(f"wrote {name}")
    return 0


def _write_sentences() -> int:
    """Run the tests that raise the errors. It takes about 20 minutes on two cores."""
    pytest = ["pytest", "impls", "-n", "2", "--dist", "loadfile", sentences.OPTION]
    return subprocess.run([sys.executable, "-m", *pytest], cwd=ROOT).returncode


def _compare(report: Path) -> int:
    fresh = parity.take(report)
    lines = parity.compare(fresh, snapshots.read("parity"))
    rows = sum(len(cases) for cases in fresh.values())
    print("\n".join([*lines, f"{rows} rows, {len(lines)} lines differ"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
