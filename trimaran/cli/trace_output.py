"""Output of the commands that write a trace, into a folder that has no trace yet."""

from pathlib import Path

import click

from trimaran.cli.options import fail, option
from trimaran.traces.trace import WORLD, Trace, write_trace

history_days_option = option(
    "--history-days",
    default=0,
    type=click.IntRange(0, 14),
    help="Days before minute 0 whose use replays know at their start, for policies that learn.",
)


def check_new(folder: Path) -> None:
    """Check, before any other work, that a folder has no trace yet.

    Raises:
        UsageError: the folder has a trace.
    """
    if (folder / WORLD).exists():
        raise click.UsageError(f"{folder} already has a trace: choose another folder")


def write_or_fail(trace: Trace, folder: Path) -> None:
    """Write a trace; exit with status 2 if the folder cannot be written."""
    try:
        write_trace(trace, folder)
    except OSError as error:
        fail(f"cannot write {folder}: {error.strerror}", 2)
