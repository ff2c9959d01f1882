"""``trimaran extender trial``: report of a field trial, as text, as a document, or as an HTML page."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from runtime.terminal import echo, echo_document, echo_table
from trimaran.cli.explain import expected_content, extender_options, get_or_exit
from trimaran.cli.options import fail
from trimaran.extender.trial import TRIAL


@click.command(short_help="Show the report of a field trial.")
@extender_options
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="File to write the report to, as a page with a figure.",
)
def trial(address: str, access: dict[str, Path | None], output: str, html: Path | None) -> None:
    """Show the report of the field trial of an extender in mode trial: effects with intervals, and a verdict.

    \b
    Example: trimaran extender trial --html trial.html

    Exit status: 0 if the report is shown, 1 if the extender does not return it, 2 if a file cannot be written.
    """
    document = get_or_exit(address, access, TRIAL)
    with expected_content(address):
        if html is not None:
            _write_page(document, html)
        if output == "text":
            _show(document)
        else:
            echo_document(document, output)


def _write_page(document: Mapping[str, Any], path: Path) -> None:
    from trimaran.extender.trial.page import trial_page  # Jinja is needed for this only

    try:
        path.write_text(trial_page(document), encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}", 2)


def _show(document: Mapping[str, Any]) -> None:
    for line in _summary(document):
        echo(line)
    echo()
    echo_table(["OUTCOME", "PAIRS", "SHADOW", "DIFFERENCE", "PERCENT", "LOW", "HIGH"], _rows(document))
    echo()
    for limit in document["limits"]:
        echo(f"- {limit}")


def _summary(document: Mapping[str, Any]) -> Iterator[str]:
    pairs, settings = document["pairs"], document["settings"]
    begin, end = (f"{datetime.fromtimestamp(document[key], UTC):%Y-%m-%d %H:%M}" for key in ("begin", "end"))
    yield document["verdict"]
    yield ""
    yield f"  trial    {document['name']}, {document['phase']}; the extender {_doing(document)} now"
    yield f"  blocks   {settings['block_seconds']} s each, {pairs['complete']} of {pairs['planned']} pairs complete"
    yield f"  time     {begin} to {end} UTC"
    if document["problem"]:
        yield f"  problem  {document['problem']}"


def _doing(document: Mapping[str, Any]) -> str:
    return "acts" if document["acting"] else "is in shadow"


def _rows(document: Mapping[str, Any]) -> Iterator[list[str]]:
    for name, effect in document["effects"].items():
        percent = effect["difference_percent"]
        yield [
            name + (" *" if name == document["primary"] else ""),
            str(effect["pairs"]),
            f"{effect['shadow']:.2f}",
            f"{effect['difference']:+.2f}",
            "" if percent is None else f"{percent:+.1f}%",
            *("" if effect[end] is None else f"{effect[end]:+.2f}" for end in ("low", "high")),
        ]
