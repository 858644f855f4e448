"""The command line ``lockstep``, which needs neither a framework nor a checkout."""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from lockstep._version import __version__
from lockstep.errors import LockstepError
from lockstep.port import command
from lockstep.ray import watch
from lockstep.registry import BACKENDS
from lockstep.schedule import as_text, parse, schedule, write_files

DISTRIBUTIONS = {"tensorflow": ("tensorflow", "tensorflow-cpu")}
"""Package -> the distributions that may provide it, if there are several."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error prints one sentence and exits with status 2."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "port":
            sys.exit(command.run(options))
        if options.command == "watch":
            watch.run(options)
        elif options.command == "schedule":
            values, folder = parse(options.arguments), options.out
            drawn = schedule(options.policy, values, options.steps, options.strict)
            files = write_files(drawn, folder) if folder is not None else []
            print(as_text(drawn, shutil.get_terminal_size().columns), *files, sep="\n")
        else:
            print(f"lockstep {__version__}")
            for package in dict.fromkeys(
                p for b in BACKENDS.values() for p in b.packages
            ):
                print(f"{package} {_version(package) or 'not installed'}")
    except LockstepError as error:
        print(f"lockstep: {error}", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("lockstep", description="Tools of Lockstep.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    about = "print the versions of Lockstep and of the frameworks that are installed"
    commands.add_parser("version", help=about, description=about.capitalize())
    about = "draw a learning-rate policy here and, with --out, as SVG, PDF and CSV"
    drawing = commands.add_parser(
        "schedule", help=about, description=about.capitalize()
    )
    drawing.add_argument("policy", help="a policy, such as poly_decay")
    drawing.add_argument("arguments", nargs="*", metavar="NAME=VALUE")
    drawing.add_argument("--steps", type=int, help="default: until it has decayed")
    about = "the original's rule, quirks included"
    drawing.add_argument("--strict", action="store_true", help=about)
    about = "draw into this folder as well (needs matplotlib)"
    drawing.add_argument("--out", type=Path, help=about)
    command.add_options(commands)
    watch.add_options(commands)
    return parser


def _version(package: str) -> str | None:
    for name in DISTRIBUTIONS.get(package, (package,)):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
