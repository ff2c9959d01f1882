"""How commands write a trace: into a folder that has none yet."""

from pathlib import Path

import click

from trimaran.cli.options import fail
from trimaran.traces.trace import WORLD, Trace, write_trace


def check_new(folder: Path) -> None:
    """Refuse a folder that has a trace, before the work.

    Raises:
        UsageError: it has.
    """
    if (folder / WORLD).exists():
        raise click.UsageError(f"{folder} has a trace already: choose another folder")


def write_or_fail(trace: Trace, folder: Path) -> None:
    """Write a trace; end with status 2 where it cannot be written."""
    try:
        write_trace(trace, folder)
    except OSError as error:
        fail(f"{folder} cannot be written: {error.strerror}", 2)
