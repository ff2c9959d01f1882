"""``trimaran score``: which node is best for a pod, and why."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
import yaml

from client.connecting import WatcherCredentials
from client.errors import ClientError, NoMetrics, WatcherUnavailable
from runtime.kubernetes.manifests import read_objects, read_pods
from runtime.terminal import echo_document, echo_table, output_option, painted
from scoring import (
    INFEASIBLE,
    KUBERNETES_VERSIONS,
    FallbackPolicy,
    Judgment,
    NodeGrade,
    NodeTable,
    Pod,
    Profile,
    Scores,
    plugin_from_config,
    read_configuration,
)
from scoring.profiles.configuration.plugins import RENAMED
from scoring.table.feasibility import fitting
from trimaran.cli.options import connected, fail, watcher_options
from watcher.model import WatcherMetrics

PLUGINS = ("TargetLoadPacking", "LoadVariationRiskBalancing", "LowRiskOverCommitment")
_USUAL = ("LoadVariationRiskBalancing",)
_GRADED_BY_PODS = {NodeGrade.ALLOCATION, NodeGrade.PREDICTED}
_FILTERED = "Filtered by room, cordons, taints and node affinity; kube-scheduler also looks at volumes and other pods."


@click.command()
@click.option(
    "--pod",
    "pod_file",
    required=True,
    type=click.Path(path_type=Path),
    help="The pod to place, or a Deployment or its like, whose template counts; - is stdin.",
)
@click.option("--nodes", "nodes_file", required=True, type=click.Path(path_type=Path), help="kubectl get nodes -o yaml")
@click.option(
    "--pods", "pods_file", type=click.Path(path_type=Path), help="The pods that run: kubectl get pods -A -o yaml"
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A KubeSchedulerConfiguration: score by all plugins of its profile, with their weights and arguments.",
)
@click.option("--scheduler", help="Which profile of --config. [default: the only one]")
@click.option(
    "--plugin",
    "plugin_names",
    type=click.Choice(PLUGINS),
    multiple=True,
    help="How to score without --config; repeated, the scores are added, as kube-scheduler does with weights of 1. "
    "[default: LoadVariationRiskBalancing]",
)
@click.option(
    "--kubernetes-version",
    default=KUBERNETES_VERSIONS[-1],
    show_default=True,
    help=f"Whose rules hold for kube-scheduler's own scores: {', '.join(KUBERNETES_VERSIONS)}.",
)
@click.option("--window", help="Exactly this window. [default: the watcher's choice]")
@click.option(
    "--fallback",
    type=click.Choice(["open", "closed", "off"]),
    default="open",
    show_default=True,
    help="For nodes without metrics: open goes by what else is known, closed places on measured nodes only, off scores "
    "as the Go plugins do.",
)
@click.option("--explain", is_flag=True, help="Say under each node what went into its scores.")
@output_option("text", "wide", "json", "yaml")
@watcher_options
def score(
    pod_file: Path,
    nodes_file: Path,
    pods_file: Path | None,
    config_file: Path | None,
    scheduler: str | None,
    plugin_names: Sequence[str],
    kubernetes_version: str,
    window: str | None,
    fallback: Literal["open", "closed", "off"],
    output: str,
    address: str | None,
    access: WatcherCredentials,
    *,
    explain: bool,
) -> None:
    """Rank nodes for a pod by what they really use, and say why.

    Nodes that the pod cannot go to come last, without a score, with what keeps it off: no room; or cordons, taints, its
    node selector or required node affinity.

    \b
    Example: kubectl get nodes -o yaml > nodes.yaml; kubectl get pods -A -o yaml > pods.yaml
             trimaran score --config scheduler.yaml --pod deployment.yaml --nodes nodes.yaml --pods pods.yaml

    Ends with status 0, with 1 when there are no metrics, with 2 when a file cannot be used.
    """
    try:
        pod = Pod.from_k8s(read_pods(pod_file)[0])
        running = read_objects(pods_file, "Pod") if pods_file else []
        nodes = NodeTable.from_k8s(read_objects(nodes_file, "Node"), running)
        profile = _profile(config_file, scheduler, plugin_names, kubernetes_version)
    except (ValueError, KeyError) as error:
        fail(str(error.args[0]) if error.args else error, status=2)
    snapshot, missing = _read(address, access, window, required=fallback == "off")
    if snapshot is not None and fallback == "off":
        prepared = profile.prepare(nodes, snapshot)
    else:
        judged = FallbackPolicy("open" if fallback == "off" else fallback).judge(nodes, snapshot, time.time())
        prepared = profile.prepare(nodes, judged)
    scores = prepared.score(pod, nodes.feasible(pod))
    obstacles = _obstacles(scores, nodes)
    for doubt in _doubts(scores, snapshot, pods_known=pods_file is not None):
        click.echo(f"trimaran: {doubt}", err=True)
    ranked = scores.order()
    if output in {"json", "yaml"}:
        echo_document(_as_document(scores, ranked, obstacles, snapshot), output)
        return
    by = "" if snapshot is None else f"the {snapshot.window.duration} window of {snapshot.source}"
    if snapshot is None or NodeGrade.ALLOCATION in scores.grades:
        by = f"allocation: {missing or (scores.judgment and scores.judgment.reasons[0])}"
    click.echo(f"{pod.namespace}/{pod.name}, by {by}\n")
    header, rows = (_plugin_columns if output == "wide" else _reasons)(scores, ranked, obstacles)
    echo_table(header, rows, _color)
    for name in ranked if explain else ():
        _explain(scores, name)
    if scores.judgment:
        click.echo(f"\n{_counted(scores.judgment)}")
    click.echo(f"\n{_FILTERED}")


def _profile(
    config_file: Path | None, scheduler: str | None, plugin_names: Sequence[str], kubernetes_version: str
) -> Profile:
    """Return what scores; say on standard error which plugins of the file cannot be scored here.

    Raises:
        ValueError: the file, or the version, cannot be used.
        KeyError: it has no such profile.
    """
    if config_file and plugin_names:
        raise click.UsageError("--config names the plugins: leave --plugin out")
    if scheduler and not config_file:
        raise click.UsageError("--scheduler is a profile of --config")
    if config_file is None:
        made = [plugin_from_config(name, {}, kubernetes_version=kubernetes_version) for name in plugin_names or _USUAL]
        return Profile.of(*made)
    try:
        configuration = read_configuration(
            yaml.safe_load(config_file.read_bytes()), kubernetes_version=kubernetes_version
        )
    except OSError as error:
        raise ValueError(f"{config_file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{config_file}: {error}") from error
    profile = configuration.profile(scheduler)
    scored = {weighted.plugin.name for weighted in profile.plugins}
    weights = configuration.weights[profile.scheduler_name]
    others = ", ".join(
        f"{weight} x {name}" for name, weight in weights.items() if RENAMED.get(name, (name,))[0] not in scored
    )
    if others:
        click.echo(f"trimaran: not scored here, though kube-scheduler does: {others}", err=True)
    if not scored:
        raise ValueError(f"{config_file}: profile {profile.scheduler_name} has no score that we know")
    return profile


def _read(
    address: str | None, access: WatcherCredentials, window: str | None, *, required: bool
) -> tuple[WatcherMetrics | None, str]:
    """Return the snapshot, or None and why there is none; end the command where it is needed."""
    with connected(address, access) as client:
        try:
            return client.metrics(window), ""
        except (NoMetrics, WatcherUnavailable) as error:
            if required:
                fail(error, status=1)
            click.echo(f"trimaran: no metrics: {error}", err=True)
            return None, str(error)
        except ClientError as error:
            fail(error, status=1)


def _obstacles(scores: Scores, nodes: NodeTable) -> Mapping[str, str]:
    """Return what keeps the pod off nodes, by name."""
    fits = fitting(scores.pod, nodes.occupancy)
    allowed = nodes.occupancy.rows.constraints.allows(scores.pod)
    found = {}
    for row in np.flatnonzero(scores.total == INFEASIBLE).tolist():
        reasons = [word for word, passed in (("room", fits[row]), ("constraints", allowed[row])) if not passed]
        found[scores.names[row]] = ", ".join(reasons) or "metrics"
    return found


def _doubts(scores: Scores, snapshot: WatcherMetrics | None, *, pods_known: bool) -> Iterator[str]:
    """Say what was most likely not meant."""
    if snapshot is not None and snapshot.data and snapshot.data.keys().isdisjoint(scores.names):
        known = sorted(snapshot.data)
        more = ", ..." if len(known) > 5 else ""
        yield f"the watcher knows none of these nodes; the ones it knows are named {', '.join(known[:5])}{more}"
    by_pods = {name for name, part in scores.plugins.items() if part.weighted.plugin.reads_pods}
    affected = sorted(by_pods | _GRADED_BY_PODS.intersection(scores.grades))
    if affected and not pods_known:
        yield f"without --pods all nodes count as empty, which matters to {', '.join(affected)}"


def _head(scores: Scores, rank: int, name: str, obstacles: Mapping[str, str]) -> list[str]:
    explained = scores.explain(name)
    total = "-" if explained.total == INFEASIBLE else str(explained.total)
    fits = f"no: {obstacles[name]}" if name in obstacles else "yes"
    return [str(rank), name, total, fits, *([explained.grade] if scores.judgment is not None else [])]


def _header(scores: Scores) -> list[str]:
    """Return the first columns; without fallback there are no grades."""
    return ["RANK", "NODE", "SCORE", "FEASIBLE", *(["GRADE"] if scores.judgment is not None else [])]


def _reasons(scores: Scores, ranked: Sequence[str], obstacles: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return the ranking as a table with a line for each plugin's reason."""
    rows = []
    for rank, name in enumerate(ranked, 1):
        cells = _head(scores, rank, name, obstacles)
        for part, weight, normalized in scores.explain(name).parts:
            times = f"{weight} x " if weight != 1 else ""
            rows.append([*cells, f"{times}{part.plugin} {normalized}: {part.line}"])
            cells = [""] * len(cells)
    return [*_header(scores), "WHY"], rows


def _plugin_columns(
    scores: Scores, ranked: Sequence[str], obstacles: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Return the ranking as a table with a column for each plugin's normalized score."""
    columns = [f"{part.weighted.weight} x {name}" for name, part in scores.plugins.items()]
    rows = [
        [
            *_head(scores, rank, name, obstacles),
            *("-" if name in obstacles else str(normalized) for _, _, normalized in scores.explain(name).parts),
        ]
        for rank, name in enumerate(ranked, 1)
    ]
    return [*_header(scores), *columns], rows


def _explain(scores: Scores, name: str) -> None:
    """Write a node's scores with the terms that they were made of."""
    explained = scores.explain(name)
    total = "-" if explained.total == INFEASIBLE else explained.total
    click.echo(f"\n{painted(name, 'bold')}: {total}")
    for part, weight, normalized in explained.parts:
        click.echo(f"  {weight} x {normalized} {part.plugin}: {part.line}")
        terms = ", ".join(f"{term} {_rounded(value)}" for term, value in part.terms.items())
        if terms:
            click.echo(f"      {terms}")


def _rounded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _color(column: str, cell: str) -> str | None:
    if column == "GRADE" and cell:
        return "green" if cell == "measured" else "yellow"
    return "red" if column == "FEASIBLE" and cell.startswith("no") else None


def _counted(judgment: Judgment) -> str:
    counts = ", ".join(f"{count} {grade}" for grade, count in sorted(judgment.counts().items()))
    return f"{counts} (fallback {judgment.policy.fail}; --fallback off scores as the Go plugins do)"


def _as_document(
    scores: Scores, ranked: Sequence[str], obstacles: Mapping[str, str], snapshot: WatcherMetrics | None
) -> dict[str, Any]:
    weights = {name: part.weighted.weight for name, part in scores.plugins.items()}
    return {
        "pod": f"{scores.pod.namespace}/{scores.pod.name}",
        "window": asdict(snapshot.window) if snapshot else None,
        "source": snapshot.source if snapshot else None,
        "weights": weights,
        "fallback": scores.judgment.policy.fail if scores.judgment else "off",
        "grades": dict(scores.judgment.counts()) if scores.judgment else {},
        "nodes": [
            {
                **scores.explain(name).as_document(),
                "feasible": name not in obstacles,
                **({"obstacle": obstacles[name]} if name in obstacles else {}),
            }
            for name in ranked
        ],
    }
