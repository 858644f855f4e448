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
        got, remedy = error.strerror or str(error), "check it, and its permissions"
        text = sentence(str(error.filename), "a path that can be used", got, remedy)
        print(f"harness: {text}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as end:
        # Typer converts Ctrl-C to an exit without a message.
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        kept = sys.argv[1:2] in (["run"], ["bench"])
        hint = "; what is done is kept, and the same command goes on" if kept else ""
        print(f"harness: interrupted{hint}.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)
