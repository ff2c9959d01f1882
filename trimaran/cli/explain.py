"""``trimaran explain``: reasons for a pod's placement. ``trimaran extender regret``: regret of past placements."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from runtime.terminal import echo_document, echo_table, output_option
from trimaran.extender.decisions import EXPLAIN, REGRET

Command = TypeVar("Command", bound=Callable[..., Any])


def extender_options(command: Command) -> Command:
    """Add the options for access to an extender to a command."""
    for option in (
        output_option("text", "json", "yaml"),
        click.option(
            "--client-certificate", type=click.Path(path_type=Path), help="PEM file with a certificate and its key."
        ),
        click.option("--ca-file", type=click.Path(path_type=Path), help="Certificate authorities to trust."),
        click.option(
            "--token-file", type=click.Path(path_type=Path), help="File with a token: kubectl create token NAME."
        ),
        click.option(
            "--extender",
            "address",
            envvar="TRIMARAN_EXTENDER_ADDRESS",
            default="http://127.0.0.1:2021",
            show_default=True,
            show_envvar=True,
            help="Address of the extender.",
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
    """Explain a pod's placement: its candidate nodes, their scores and terms, and the load afterwards.

    \b
    Example: trimaran explain default/web-7d4b9 --token-file token
    """
    decision = _get(address, EXPLAIN, {"pod": pod}, token_file, ca_file, client_certificate)
    if output == "text":
        _show_decision(decision)
    else:
        echo_document(decision, output)


@click.command()
@extender_options
def regret(
    address: str, token_file: Path | None, ca_file: Path | None, client_certificate: Path | None, output: str
) -> None:
    """Show the load of the chosen nodes after placement, compared with the extender's best nodes."""
    summary = _get(address, REGRET, {}, token_file, ca_file, client_certificate)
    if output == "text":
        _show_regret(summary)
    else:
        echo_document(summary, output)


def _get(
    address: str,
    path: str,
    query: Mapping[str, str],
    token_file: Path | None,
    ca_file: Path | None,
    client_certificate: Path | None,
) -> dict[str, Any]:
    """Return the extender's answer; exit with status 1 and the reason if there is none."""
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


def _show_decision(decision: Mapping[str, Any]) -> None:
    click.echo("\n".join(_summary(decision)))
    if decision["outcome"] == "not_asked":
        return
    rows = []
    for node in decision["nodes"]:
        cells = ["*" if node["chosen"] else "", node["name"], str(node["answered"]), node["grade"]]
        for plugin in node["plugins"]:
            rows.append([*cells, f"{plugin['name']} {plugin['score']}: {plugin['why']}"])
            cells = [""] * len(cells)
    click.echo()
    echo_table(["", "NODE", "SCORE", "GRADE", "WHY"], rows)


def _summary(decision: Mapping[str, Any]) -> Iterator[str]:
    chosen = decision.get("chosen") or {}
    if decision["outcome"] == "not_asked":
        yield f"{decision['pod']} runs on {chosen['node']}; the extender did not score it. Possible reasons:"
        yield from (f"  - {reason}" for reason in decision["why"])
        return
    yield f"{decision['pod']} ({decision['scheduler']}), answered {_time(decision['at'])}"
    is_active = decision["mode"] == "active"
    yield f"  outcome     {decision['outcome']}{'' if is_active else ', in shadow mode: all nodes got the same score'}"
    yield f"  candidates  {decision['candidates']}; {decision['in_flight']} pods in flight"
    if data := decision["data"]:
        yield f"  metrics     {data['window']} window of {data['source']}, {data['age_seconds']:.0f} s old"
    if best := decision["best"]:
        yield f"  best        {best['node']} with {best['score']}"
    if not chosen:
        yield "  chosen      unknown (yet)"
    elif chosen.get("rank") is None:
        yield f"  chosen      {chosen['node']}"
    else:
        rank = f"{chosen['score']}, rank {chosen['rank']}, {chosen['margin']} below the best"
        yield f"  chosen      {chosen['node']} with {rank}"
    if after := decision["after"]:
        uses = (
            f"{which} {', '.join(f'{name} {value:.1f} %' for name, value in after[key].items())}"
            for which, key in (("chosen", "chosen_percent"), ("best with the pod", "best_percent"))
        )
        yield f"  afterwards  {'; '.join(uses)}: regret {after['regret']:+.1f} points"


def _show_regret(summary: Mapping[str, Any]) -> None:
    from trimaran.extender.decisions.decisions_client import regret_rows  # so that --help is quick

    header = ["SCHEDULER", "MODE", "PODS", "SAME NODE", "CHOSEN", "BEST", "REGRET", "P95", "CHOSEN HOT", "BEST HOT"]
    echo_table(header, regret_rows(summary))
    click.echo(
        f"\n{summary['waiting']} pods are not counted yet: their first window is not complete; "
        f"hot: {summary['hot_percent']:g} % or more"
    )


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
