"""Output and options that the commands share: lines, documents, tables, colors on a terminal, durations.

All output of the commands passes through this module (``make lint`` checks this). It redacts secrets and escapes
control characters: names and messages come from files and services that could otherwise control the terminal.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
import orjson

from runtime import duration, masking

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(*forms: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the option ``-o`` to a command, which gets the argument ``output``.

    As in kubectl, every command accepts ``wide``, which means ``text`` if the command has no further columns. The
    hidden option ``--json`` is the same as ``-o json``.

    Args:
        forms: forms that the command writes; the first is the default.
    """
    choice = click.Choice(["text", "wide", "json", "yaml"])

    def known_form(_context: click.Context, _option: click.Parameter, value: str) -> str:
        return value if value in forms else forms[0]

    def decorate(command: Command) -> Command:
        # Both options set one parameter: click converts the value of either by both of them.
        command = click.option("--json", "output", flag_value="json", hidden=True, callback=known_form)(command)
        return click.option(
            "-o", "--output", type=choice, default=forms[0], show_default=True, callback=known_form,
            help="The form of the output.",
        )(command)  # fmt: skip

    return decorate


def duration_option(*names: str, default: str, help: str, show_default: bool = True) -> Callable[[Command], Command]:  # noqa: A002  as click has it
    """Return a decorator that adds an option in seconds, which also accepts a duration such as ``5m``."""

    def to_seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
        try:
            return float(value) if value.replace(".", "", 1).isdecimal() else duration.seconds(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return click.option(
        *names, default=default, help=help, show_default=show_default, metavar="DURATION", callback=to_seconds
    )


class Styled(str):
    """Text with color codes, in which all other control characters are escaped already."""

    __slots__ = ()


def echo(*parts: str, err: bool = False) -> None:
    """Write a line of one or more parts; :func:`colorize` makes a colored part."""
    click.echo("".join(part if isinstance(part, Styled) else masking.to_line(part) for part in parts), err=err)


def echo_lines(text: str, *, err: bool = False) -> None:
    """Write a text of several lines, such as a list of problems, with its line breaks, which :func:`echo` escapes."""
    for line in text.split("\n"):
        echo(line, err=err)


def echo_document(document: object, form: str) -> None:
    """Write a document as ``json`` or ``yaml``."""
    text = orjson.dumps(document, default=_plain, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)
    if form == "yaml":
        echo_yaml(orjson.loads(text))
    else:
        characters = (each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text.decode())
        click.echo("".join(characters))


def echo_yaml(document: object) -> None:
    """Write a document of plain types as YAML."""
    import yaml  # only needed here

    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    if not text.replace("\n", "").isprintable():  # such as marks that change the direction of text
        text = yaml.safe_dump(document, sort_keys=False)
    click.echo(text, nl=False)


def echo_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    color: Callable[[str, str], str | None] = lambda _column, _cell: None,
) -> None:
    """Write a table whose columns are as wide as their longest cell.

    Args:
        header: names of the columns.
        rows: one text per column.
        color: color of a cell, by its column's name and its text; None for no color. Used on a terminal only.
    """
    header, *rows = [[masking.to_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    echo(colorize(_line(header, widths), "bold"))
    for row in rows:
        colors = [color(name, cell) for name, cell in zip(header, row, strict=True)]
        padded = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        cells = [colorize(cell, each) if each else cell for cell, each in zip(padded, colors, strict=True)]
        echo(Styled("   ".join(cells).rstrip()))


def colorize(text: str, color: str) -> Styled:
    """Return a text in a color, or ``bold``; in pipes and files, and if NO_COLOR is set, without a color."""
    text = masking.to_line(text)
    if os.environ.get("NO_COLOR") or not _is_terminal():
        return Styled(text)
    return Styled(click.style(text, bold=True) if color == "bold" else click.style(text, fg=color))


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def load_color(percent: float) -> str | None:
    """Return the color of a load in percent; None below 75."""
    return "red" if percent >= 90 else "yellow" if percent >= 75 else None


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "   ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
