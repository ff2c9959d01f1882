"""``trimaran explain``: why a pod went where it went; ``trimaran extender regret``: what placements were worth."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from runtime.terminal import echo_document, echo_table, output_option
from trimaran.extender.decisions import EXPLAIN, REGRET

Command = TypeVar("Command", bound=Callable[..., Any])


def extender_options(command: Command) -> Command:
    """Give a command what it asks an extender with."""
    for option in (
        output_option("text", "json", "yaml"),
        click.option(
            "--client-certificate", type=click.Path(path_type=Path), help="A PEM file with certificate and key."
        ),
        click.option("--ca-file", type=click.Path(path_type=Path), help="Certificate authorities to trust."),
        click.option(
            "--token-file", type=click.Path(path_type=Path), help="A file with a token: kubectl create token NAME."
        ),
        click.option(
            "--extender",
            "address",
            envvar="TRIMARAN_EXTENDER_ADDRESS",
            default="http://127.0.0.1:2021",
            show_default=True,
            show_envvar=True,
            help="The extender's address.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("pod", metavar="NAMESPACE/NAME")
@extender_options
def explain(
    pod: str, address: str, token_file: Path | None, ca_file: Path | None, client_certificate: Path | None, output: str
) -> None:
    """Say why a pod went where it went: its candidates, their scores and terms, and what came of it.

    \b
    Example: trimaran explain default/web-7d4b9 --token-file token
    """
    found = _ask(address, EXPLAIN, {"pod": pod}, token_file, ca_file, client_certificate)
    if output == "text":
        _tell(found)
    else:
        echo_document(found, output)


@click.command()
@extender_options
def regret(
    address: str, token_file: Path | None, ca_file: Path | None, client_certificate: Path | None, output: str
) -> None:
    """Show what the nodes that pods went to used afterwards, and what ours would have used."""
    found = _ask(address, REGRET, {}, token_file, ca_file, client_certificate)
    if output == "text":
        _tell_regret(found)
    else:
        echo_document(found, output)


def _ask(
    address: str,
    path: str,
    query: Mapping[str, str],
    token_file: Path | None,
    ca_file: Path | None,
    client_certificate: Path | None,
) -> dict[str, Any]:
    """Return what an answer holds; end with status 1 and the reason where there is none."""
    from trimaran.extender.decisions.decisions_client import (  # so that --help is quick
        DecisionsClient,
        DecisionsUnavailable,
    )

    try:
        return DecisionsClient(address, token_file, ca_file, client_certificate).get(path, **query)
    except DecisionsUnavailable as error:
        raise SystemExit(_failed(str(error))) from None


def _failed(message: str) -> int:
    click.echo(f"trimaran: {message}", err=True)
    return 1


def _tell(found: Mapping[str, Any]) -> None:
    click.echo("\n".join(_summary(found)))
    if found["outcome"] == "not_asked":
        return
    rows = []
    for node in found["nodes"]:
        cells = ["*" if node["chosen"] else "", node["name"], str(node["answered"]), node["grade"]]
        for plugin in node["plugins"]:
            rows.append([*cells, f"{plugin['name']} {plugin['score']}: {plugin['why']}"])
            cells = [""] * len(cells)
    click.echo()
    echo_table(["", "NODE", "SCORE", "GRADE", "WHY"], rows)


def _summary(found: Mapping[str, Any]) -> Iterator[str]:
    chosen = found.get("chosen") or {}
    if found["outcome"] == "not_asked":
        yield f"{found['pod']} runs on {chosen['node']}, and the extender was not asked about it. Either:"
        yield from (f"  - {reason}" for reason in found["why"])
        return
    yield f"{found['pod']} ({found['scheduler']}), answered {_time(found['at'])}"
    acted = found["mode"] == "active"
    yield f"  outcome     {found['outcome']}{'' if acted else ', in shadow: all nodes were answered alike'}"
    yield f"  candidates  {found['candidates']}; {found['in_flight']} pods were on their way"
    if data := found["data"]:
        yield f"  metrics     {data['window']} window of {data['source']}, {data['age_seconds']:.0f} s old"
    if best := found["best"]:
        yield f"  best        {best['node']} with {best['score']}"
    if not chosen:
        yield "  chosen      not known (yet)"
    elif chosen.get("rank") is None:
        yield f"  chosen      {chosen['node']}"
    else:
        rank = f"{chosen['score']}, place {chosen['rank']}, {chosen['margin']} below the best"
        yield f"  chosen      {chosen['node']} with {rank}"
    if after := found["after"]:
        uses = (
            f"{which} {', '.join(f'{name} {value:.1f} %' for name, value in after[key].items())}"
            for which, key in (("chosen", "chosen_percent"), ("best with the pod", "best_percent"))
        )
        yield f"  afterwards  {'; '.join(uses)}: regret {after['regret']:+.1f} points"


def _tell_regret(found: Mapping[str, Any]) -> None:
    from trimaran.extender.decisions.decisions_client import regret_rows  # so that --help is quick

    header = ["SCHEDULER", "MODE", "PODS", "SAME NODE", "CHOSEN", "OURS", "REGRET", "P95", "CHOSEN HOT", "OURS HOT"]
    echo_table(header, regret_rows(found))
    click.echo(f"\n{found['waiting']} pods wait for their first whole window; hot: {found['hot_percent']:g} % or more")


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
