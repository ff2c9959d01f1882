"""``trimaran rebalance``: controller that moves running pods where the predicted congestion falls most."""

from contextlib import closing
from pathlib import Path
from typing import Any

import click
import orjson

from runtime.errors import SettingsProblems
from runtime.terminal import echo
from trimaran.cli.options import checked_url, controller_options, fail, option, pod_argument
from trimaran.rebalancer.settings import RebalanceSettings
from watcher.commands import ServiceStart, errors_or_exit, load_or_exit, setting_options

_url_option = option("--url", default="http://127.0.0.1:2024", callback=checked_url, help="URL of the rebalancer.")
_token_option = click.option("--token-file", type=click.Path(path_type=Path), help="File with the rebalancer's token.")
_kube_option = click.option("--kube-config", help="Kubeconfig file. [default: the pod's service account]")


@click.group(invoke_without_command=True)
@controller_options(
    2024, ("--mode", "rebalance.mode", "observe plans only and writes nothing; act moves pods. [default: observe]")
)
@click.pass_context
def rebalance(context: click.Context, start: ServiceStart) -> None:
    """Move running pods to the nodes where the predicted congestion falls most.

    By default it only observes: it plans, explains and predicts both nodes' loads, and writes nothing. Of several
    replicas that act, only the leader (by a Lease) does.

    \b
    Example: trimaran rebalance --watcher http://trimaran:2020

    Exit status: 0 if stopped by a signal, 1 if it cannot listen, 2 if the settings are invalid.
    """
    if context.invoked_subcommand is not None:
        return
    settings = start.load(RebalanceSettings).settings
    from trimaran.rebalancer import service  # Flask and gunicorn are only needed here

    with errors_or_exit(settings.log.format):
        problems = SettingsProblems()
        with problems.collect():
            settings.cluster.check_watcher(settings)  # fail here, not in a worker process
        problems.raise_any()
        service.serve(settings)


@rebalance.command(short_help="Show the last plan, the caps and the open moves.")
@_url_option
@_token_option
@click.option("--json", "as_json", is_flag=True, help="Print the state as JSON.")
def status(url: str, token_file: Path | None, *, as_json: bool) -> None:
    """Show the state of a running rebalancer: mode, brake, caps, the last plan, and the moves of the past day.

    Exit status: 0 if it was shown, 1 if the rebalancer does not answer.
    """
    document = _get(url, "/status", token_file)
    if as_json:
        echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
        return
    for line in status_lines(document):
        echo(line)


@rebalance.command(short_help="Explain why a pod moves or stays.")
@pod_argument
@_url_option
@_token_option
def explain(pod: str, url: str, token_file: Path | None) -> None:
    """Explain by the last search why a running pod moves or stays, and which setting would change it.

    \b
    Example: trimaran rebalance explain default/web-5d8f7c9b64-x2x8p --url http://trimaran-rebalancer:2024

    Exit status: 0 if it was explained, 1 if the pod is unknown or the rebalancer does not answer, 2 without a name.
    """
    found = _get(url, "/explain", token_file, pod=pod)
    if found["moves"]:
        echo(f"{pod} moves from {found['source']} to {found['target']}: predicted gain {found['gain']:.2f}")
        for name in ("source", "target"):
            before, after = (found[f"{name}_load"][when] for when in ("before", "after"))
            cpu, memory = (f"{old:.0f} % to {new:.0f} %" for old, new in zip(before, after, strict=True))
            echo(f"  {found[name]}: CPU {cpu}, memory {memory}")
    else:
        echo(f"{pod} stays: {found['text']}")
        if "gain" in found:
            interval = f"{found['gain']:.3f}, its interval begins at {found['low']:.3f}"
            echo(f"  best move: to {found['target']}, predicted gain {interval}; min_gain {found['min_gain']:g}")
        if "hidden_cores" in found:
            echo(f"  hidden demand: up to {found['hidden_cores']:.2f} cores more than its use, as its node was full")
        if found.get("coldest_target"):
            echo(f"  coldest target: {found['coldest_target']}")


@rebalance.command(short_help="Stop all moves, and remove what the rebalancer has written on pods.")
@_kube_option
@click.option("--clean", is_flag=True, help="Also remove the annotations of planned targets from pods.")
@setting_options
def stop(kube_config: str | None, file: Path | None, assignments: tuple[str, ...], *, clean: bool) -> None:
    """Stop all moves at once, until trimaran rebalance resume. Needs no running rebalancer.

    Exit status: 0 if it is stopped, 1 if the API server refuses or does not answer, 2 if the settings are invalid.
    """
    settings = load_or_exit(RebalanceSettings, file, assignments, {"cluster.kube_config": kube_config}).settings
    from trimaran.rebalancer import stopping  # imports the HTTP client

    with errors_or_exit(settings.log.format):
        result = stopping.stop(settings, clean=clean)
        cleaned = f"; the annotations of {result.notes} pods are removed" if clean else ""
        echo(f"trimaran: stopped; the replacements of {result.open} evicted pods are awaited{cleaned}")


@rebalance.command(short_help="Release the brake.")
@_kube_option
@setting_options
def resume(kube_config: str | None, file: Path | None, assignments: tuple[str, ...]) -> None:
    """Release the brake, which the rebalancer or trimaran rebalance stop has set. Caps and cooldowns stay.

    Exit status: 0 if it is released, 1 if the API server refuses or does not answer, 2 if the settings are invalid.
    """
    settings = load_or_exit(RebalanceSettings, file, assignments, {"cluster.kube_config": kube_config}).settings
    from trimaran.rebalancer import stopping  # imports the HTTP client

    with errors_or_exit(settings.log.format):
        was_set, where = stopping.resume(settings)
        unset = f"the brake was not set in the {where} (cluster.lease_namespace, rebalance.lease_name)"
        echo("trimaran: the brake is released" if was_set else f"trimaran: {unset}")


def _get(url: str, path: str, token_file: Path | None, **query: str) -> dict[str, Any]:
    """Return the JSON of a route of the rebalancer; exit with status 1 if the rebalancer does not answer."""
    from runtime.http.json_service import JsonService, ServiceUnavailable  # so that --help is quick

    try:
        with closing(JsonService("rebalancer", url, token_file)) as service:
            return service.get(path, **query)
    except ServiceUnavailable as error:
        fail(error, status=1)


def status_lines(document: dict[str, Any]) -> list[str]:
    """Return the state of a rebalancer as lines of text."""
    brake = document["brake"]
    doing = "moves pods" if document["acts"] else "only observes"
    lines = [f"mode {document['mode']}: {doing}, {document['searches']} searches"]
    if brake is not None:
        lines.append(f"the brake is set ({brake['reason']}): {brake['text']}")
    if document["nothing"]:
        lines.append(f"no search: {document['nothing']}")
    lines.append("moves: " + ", ".join(f"{of[0]} of {of[1]} {name}" for name, of in document["caps"].items()))
    for move in document["planned"]:
        source, target = move["source_load"], move["target_load"]
        lines.append(
            f"  planned: {move['name']} from {move['source']} (CPU {source['before'][0]:.0f} % to "
            f"{source['after'][0]:.0f} %) to {move['target']} (CPU {target['before'][0]:.0f} % to "
            f"{target['after'][0]:.0f} %), gain {move['gain']:.2f}"
        )
    for move in document["moves"]:
        measured = "" if move["measured"] is None else f", measured gain {move['measured']:.2f}"
        where = move["landed_on"] or move["target"]
        lines.append(f"  {move['state']}: {move['name']} from {move['source']} to {where}{measured}")
    for reason, number in sorted(document["stays"].items(), key=lambda each: -each[1]):
        lines.append(f"  {number} pods stay: {reason.replace('_', ' ')}")
    return lines
