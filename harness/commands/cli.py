"""The command line: ``python -m harness COMMAND``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping

import typer

from harness.commands.findings import compare, pages, plot
from harness.commands.measurements import (
    bench,
    check,
    list_everything,
    run_experiments,
)
from harness.commands.parity import oracle, parity
from harness.errors import HarnessError
from lockstep.errors import LockstepError, sentence

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of a command that passes its arguments to another parser."""

INTERRUPTED = 130
"""The exit status after Ctrl-C."""

app = typer.Typer(
    help="Replay recorded cases, run experiments, draw plots, write pages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "list": list_everything,
    "parity": parity,
    "oracle": oracle,
    "run": run_experiments,
    "check": check,
    "bench": bench,
    "compare": compare,
    "plot": plot,
    "pages": pages,
}
"""Name of a command -> its function, in the order of ``--help``."""

for name, command in COMMANDS.items():
    app.command(name)(command)


@app.command(add_help_option=False, context_settings=PASSED_ON)
def schedule(context: typer.Context) -> None:
    """Draw a learning-rate policy; the same as the installed `lockstep schedule`."""
    from lockstep.cli import main as lockstep

    lockstep(["schedule", *context.args])


def main() -> None:
    """Run the command line. An error of the user is printed, with exit status 2.

    A path that cannot be read, written or executed is such an error, too.
    SIGTERM has the effect of Ctrl-C: children are stopped and finished work is kept.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except (HarnessError, LockstepError) as error:
        print(f"harness: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"harness: {unusable(error)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        say_interrupted()
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        # Typer converts Ctrl-C to this, without a message.
        if end.code == INTERRUPTED:
            say_interrupted()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def unusable(error: OSError) -> str:
    """Return the message about a path that cannot be read, written or executed."""
    expected, remedy = "a path that can be used", "check it, and its permissions"
    got = error.strerror or str(error)
    return sentence(str(error.filename), expected, got, remedy)


def say_interrupted() -> None:
    """Print what Ctrl-C kept: runs and processes are recorded when they end."""
    goes_on = "; what is done is kept, and the same command goes on"
    hint = goes_on if sys.argv[1:2] in (["run"], ["bench"]) else ""
    print(f"harness: interrupted{hint}.", file=sys.stderr)
