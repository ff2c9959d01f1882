"""``trimaran simulate check``: find all problems of a trace before it is replayed."""

from pathlib import Path
from typing import Any

import click

from runtime.terminal import echo, echo_document, output_option
from trimaran.traces.checks import use_shares
from trimaran.traces.problems import TraceProblems
from trimaran.traces.reading import examine_trace
from trimaran.traces.trace import RESOURCES


@click.command(short_help="Check the files of traces, and list all of their problems.")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR...")
@output_option("text", "json", "yaml")
def check(folders: tuple[Path, ...], output: str) -> None:
    """Check the files of one or more traces, and list all problems, with file, row, value and remedy.

    An error makes a trace unusable: replays refuse it. A warning names data that is ignored, or possible but unusual.

    \b
    Example: trimaran simulate check worlds/a

    Exit status: 0 if all traces can be replayed, 2 if not.
    """
    if output == "text":
        usable = [_check(folder) for folder in folders]
    else:
        documents = [_document(folder) for folder in folders]
        echo_document(documents, output)
        usable = [not document["errors"] for document in documents]
    raise SystemExit(0 if all(usable) else 2)


def _document(folder: Path) -> dict[str, Any]:
    """Return the problems of a trace as a document."""
    _, problems = examine_trace(folder)
    return {"trace": str(folder), "errors": list(problems.errors), "warnings": list(problems.warnings)}


def _check(folder: Path) -> bool:
    """Print the problems of a trace and a summary; return whether the trace can be replayed."""
    trace, problems = examine_trace(folder)
    for kind, texts in (("error", problems.errors), ("warning", problems.warnings)):
        for text in texts:
            echo(f"{kind}: {text}")
    if trace is None:
        echo(f"{folder}: cannot be replayed: {_count(len(problems.errors), 'error')}, {_warnings(problems)}")
        return False
    echo(
        f"{folder}: {_count(len(trace.nodes), 'node')}, {_count(len(trace.pods), 'pod')}, {trace.minutes} minutes "
        f"({trace.warm_up_minutes} of them warm-up), {_count(len(trace.events), 'node event')}; {_warnings(problems)}"
    )
    for resource, factor in zip(RESOURCES, trace.overcommit, strict=True):
        of_capacity, of_requests = (f"{100 * share:.0f} %" for share in use_shares(trace, resource))
        echo(f"  {resource}: use is {of_capacity} of capacity and {of_requests} of requests; overcommit {factor:g}")
    return True


def _warnings(problems: TraceProblems) -> str:
    return _count(len(problems.warnings), "warning")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
