"""``trimaran score``: rank the nodes of a cluster for a pod, with explanations of the scores."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from client.connecting import WatcherCredentials
from runtime.kubernetes.manifests import read_objects, read_pods
from runtime.terminal import colorize, echo, echo_document, echo_table, output_option
from scoring import INFEASIBLE, FallbackPolicy, NodeTable, Pod, Profile, Scores, plugin_from_config
from scoring.kubernetes_version import KUBERNETES_VERSIONS
from scoring.load.pod_expectation import expectation_line
from scoring.profiles.configuration.fields import did_you_mean, refuse_unknown
from scoring.profiles.configuration.plugins import RENAMED
from scoring.profiles.configuration.plugins import plugin_names as known_plugins
from scoring.profiles.fallback import Judgment, NodeGrade
from scoring.table.feasibility import fitting
from trimaran.cli.options import (
    allow_option,
    fail,
    kubernetes_version_option,
    option,
    path_option,
    report_newest_version,
    watcher_options,
)
from trimaran.cli.score_input import WatcherInput, read_watcher
from trimaran.planning.file_gaps import file_gaps
from trimaran.plugins import DEFAULT_PLUGIN, installed_plugins, read_scheduler_file, uncalled
from trimaran.scheduler_file import scheduler_file
from watcher.model import WatcherMetrics

_GRADED_BY_PODS = {NodeGrade.ALLOCATION, NodeGrade.PREDICTED}
_FILTERED = "Filtered by room, cordons, taints and node affinity; kube-scheduler also checks volumes and other pods."


@click.command()
@path_option(
    "--pod", "pod_file", required=True, help="Pod, or a workload with a pod template such as a Deployment; - for stdin."
)
@path_option("--nodes", "nodes_file", required=True, help="Output of kubectl get nodes -o yaml.")
@path_option("--pods", "pods_file", help="Running pods: output of kubectl get pods -A -o yaml.")
@path_option(
    "--config",
    "config_file",
    help="KubeSchedulerConfiguration: score by the plugins of its profile, with their weights and arguments.",
)
@click.option("--scheduler", help="Profile of --config, by scheduler name. [default: the only profile]")
@click.option(
    "--plugin",
    "plugin_names",
    multiple=True,
    metavar="NAME",
    help="Included or installed plugin to score by; repeatable, each plugin has a weight of 1, and the arguments that "
    f"--config has for it. [default: {DEFAULT_PLUGIN}, or the plugins of --config]",
)
@kubernetes_version_option
@allow_option
@click.option("--window", help="Window of the metrics. [default: the watcher's default window]")
@click.option(
    "--learned-use",
    is_flag=True,
    help="Expect pods to use what the watcher has learned of their workloads, instead of their requests, as "
    "extender.learned_use; needs --watcher.",
)
@option(
    "--fallback",
    type=click.Choice(["open", "closed", "off"]),
    default="open",
    help="Nodes without metrics: open uses other data such as requests, closed excludes the nodes, off scores as the "
    "Go plugins do.",
)
@click.option("--explain", is_flag=True, help="Print the terms of each score.")
@output_option("text", "wide", "json", "yaml")
@watcher_options
def score(
    pod_file: Path,
    nodes_file: Path,
    pods_file: Path | None,
    config_file: Path | None,
    scheduler: str | None,
    plugin_names: Sequence[str],
    kubernetes_version: str | None,
    allow: tuple[str, ...],
    window: str | None,
    fallback: Literal["open", "closed", "off"],
    output: str,
    address: str | None,
    access: WatcherCredentials,
    *,
    learned_use: bool,
    explain: bool,
) -> None:
    """Rank the nodes for a pod by their measured load, with the reasons.

    Nodes that are not feasible come last, without a score. FEASIBLE names the obstacle: room (the requests do not
    fit), constraints (cordons, taints, node selector or required node affinity), or metrics (with --fallback closed).

    \b
    Example: kubectl get nodes -o yaml > nodes.yaml; kubectl get pods -A -o yaml > pods.yaml
             trimaran score --config scheduler.yaml --pod deployment.yaml --nodes nodes.yaml --pods pods.yaml

    Exit status: 0 if nodes are ranked, 1 if required metrics cannot be read or are too few for --fallback closed,
    2 if a file or an option cannot be used.
    """
    try:
        pod = Pod.from_k8s(read_pods(pod_file)[0])
        running = read_objects(pods_file, "Pod") if pods_file else []
        nodes = NodeTable.from_k8s(read_objects(nodes_file, "Node"), running)
        profile = _profile(config_file, scheduler, plugin_names, kubernetes_version or KUBERNETES_VERSIONS[-1], allow)
    except (ValueError, KeyError) as error:
        fail(str(error.args[0]) if error.args else error, status=2)
    if kubernetes_version is None and any(hasattr(each.plugin, "kubernetes_version") for each in profile.plugins):
        report_newest_version()
    read = read_watcher(address, access, window, profile, required=fallback == "off", learned_use=learned_use)
    snapshot = read.snapshot
    if snapshot is not None and fallback == "off":
        prepared = profile.prepare(nodes, snapshot, read.levels)
    else:
        judged = FallbackPolicy("open" if fallback == "off" else fallback).judge(nodes, snapshot, time.time())
        if len(nodes) and judged.refused.all():
            fail(f"no node can get the pod: {judged.reasons[0]}; --fallback open ranks them by other data", status=1)
        prepared = profile.prepare(nodes, judged, read.levels)
    scores = prepared.score(pod, nodes.feasible(pod))
    obstacles = _obstacles(scores, nodes)
    for warning in (
        *_warnings(scores, snapshot, pods_known=pods_file is not None),
        *file_gaps(pod, nodes, scores.plugins),
    ):
        echo(f"trimaran: {warning}", err=True)
    ranked = scores.order()
    expected = read.expectation(pod).as_document() if learned_use else None
    if output in {"json", "yaml"}:
        echo_document(_as_document(scores, ranked, obstacles, snapshot, expected), output)
        return
    echo(f"{pod.namespace}/{pod.name}, by {_basis(scores, read)}")
    if expected is not None:
        echo(f"expected use of the pod: {expectation_line(expected)}")
    echo()
    header, rows = (_plugin_columns if output == "wide" else _reasons)(scores, ranked, obstacles)
    echo_table(header, rows, _color)
    for name in ranked if explain else ():
        _explain(scores, name)
    if scores.judgment:
        echo()
        echo(_grade_counts(scores.judgment))
    echo()
    echo(_FILTERED)


def _basis(scores: Scores, read: WatcherInput) -> str:
    """Return a text that names the data by which the nodes are scored."""
    snapshot = read.snapshot
    if snapshot is None or NodeGrade.ALLOCATION in scores.grades:
        return f"allocation: {read.missing or (scores.judgment and scores.judgment.reasons[0])}"
    return f"the {snapshot.window.duration} window of {snapshot.source}"


def _profile(
    config_file: Path | None,
    scheduler: str | None,
    plugin_names: Sequence[str],
    kubernetes_version: str,
    allow: Sequence[str],
) -> Profile:
    """Return the profile to score with; print a warning if the file has plugins that trimaran does not implement.

    Raises:
        ValueError: the file is invalid.
        KeyError: the file has no profile for ``scheduler``.
    """
    if scheduler and not config_file:
        raise click.UsageError("--scheduler needs --config")
    _check_names(plugin_names)
    if config_file is None:
        return _of_plugins(plugin_names or [DEFAULT_PLUGIN], kubernetes_version)
    with scheduler_file(config_file, "--allow ") as file:
        configuration = read_scheduler_file(file.document, kubernetes_version=kubernetes_version, allow=allow)
        refuse_unknown(configuration.notes)
        for ignored in uncalled(file.document):
            echo(f"trimaran: warning: {config_file}: {ignored}", err=True)
        if plugin_names:
            only = _with_plugins(file.document, plugin_names)
            return read_scheduler_file(only, kubernetes_version=kubernetes_version, allow=allow).profile(scheduler)
    profile = configuration.profile(scheduler)
    scored = {weighted.plugin.name for weighted in profile.plugins}
    weights = configuration.weights[profile.scheduler_name]
    others = ", ".join(
        f"{weight} x {name}" for name, weight in weights.items() if RENAMED.get(name, (name,))[0] not in scored
    )
    if others:
        echo(f"trimaran: kube-scheduler also scores by plugins that are not available here: {others}", err=True)
    if not scored:
        raise ValueError(f"{config_file}: {profile.scheduler_name} has no known score plugin; name one by --plugin")
    return profile


def _check_names(names: Sequence[str]) -> None:
    known = known_plugins(installed_plugins())
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known))
            raise click.UsageError(f"--plugin {name}: unknown plugin{did_you_mean(name, known)} Plugins are: {listed}")


def _of_plugins(names: Sequence[str], kubernetes_version: str) -> Profile:
    """Return the profile of plugins with their default arguments.

    Raises:
        ValueError: a plugin needs arguments.
    """
    try:
        return Profile.of(*(
            plugin_from_config(name, {}, kubernetes_version=kubernetes_version, plugins=installed_plugins())
            for name in names
        ))  # fmt: skip
    except ValueError as error:
        raise ValueError(f"{error}; write the arguments into a KubeSchedulerConfiguration, and add --config") from error


def _with_plugins(document: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a copy of a KubeSchedulerConfiguration that scores by the named plugins, each of weight 1."""
    plugins = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}}
    profiles = [{**profile, "plugins": plugins} for profile in document.get("profiles") or [{}]]
    return {**document, "profiles": profiles}


def _obstacles(scores: Scores, nodes: NodeTable) -> Mapping[str, str]:
    """Return why each infeasible node is excluded (room, constraints or metrics), by node name."""
    fits = fitting(scores.pod, nodes.occupancy)
    allowed = nodes.occupancy.rows.constraints.allows(scores.pod)
    obstacles = {}
    for row in np.flatnonzero(scores.total == INFEASIBLE).tolist():
        reasons = [word for word, passed in (("room", fits[row]), ("constraints", allowed[row])) if not passed]
        obstacles[scores.names[row]] = ", ".join(reasons) or "metrics"
    return obstacles


def _warnings(scores: Scores, snapshot: WatcherMetrics | None, *, pods_known: bool) -> Iterator[str]:
    """Yield warnings about input that is probably a mistake."""
    if snapshot is not None and snapshot.data and snapshot.data.keys().isdisjoint(scores.names):
        known = sorted(snapshot.data)
        more = ", ..." if len(known) > 5 else ""
        yield f"the watcher has none of these nodes; its nodes are {', '.join(known[:5])}{more}"
    by_pods = {name for name, part in scores.plugins.items() if part.weighted.plugin.reads_pods}
    affected = sorted(by_pods | _GRADED_BY_PODS.intersection(scores.grades))
    if affected and not pods_known:
        yield f"without --pods all nodes count as empty, which affects {', '.join(affected)}"


def _head(scores: Scores, rank: int, name: str, obstacles: Mapping[str, str]) -> list[str]:
    explanation = scores.explain(name)
    total = "-" if explanation.total == INFEASIBLE else str(explanation.total)
    fits = f"no: {obstacles[name]}" if name in obstacles else "yes"
    return [str(rank), name, total, fits, *([explanation.grade] if scores.judgment is not None else [])]


def _header(scores: Scores) -> list[str]:
    """Return the header of the first columns; the grade of a node's data is left out with ``--fallback off``."""
    return ["RANK", "NODE", "SCORE", "FEASIBLE", *(["GRADE"] if scores.judgment is not None else [])]


def _reasons(scores: Scores, ranked: Sequence[str], obstacles: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the ranking, with a row for each node and plugin: the plugin's score and its reason."""
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
    """Return header and rows of the ranking, with a row for each node and a column for each plugin's score."""
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
    """Print a node's score by each plugin, with the terms of the plugin's formula."""
    explanation = scores.explain(name)
    total = "-" if explanation.total == INFEASIBLE else explanation.total
    echo()
    echo(colorize(name, "bold"), f": {total}")
    for part, weight, normalized in explanation.parts:
        echo(f"  {weight} x {normalized} {part.plugin}: {part.line}")
        terms = ", ".join(f"{term} {_rounded(value)}" for term, value in part.terms.items())
        if terms:
            echo(f"      {terms}")


def _rounded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _color(column: str, cell: str) -> str | None:
    if column == "GRADE" and cell:
        return "green" if cell == "measured" else "yellow"
    return "red" if column == "FEASIBLE" and cell.startswith("no") else None


def _grade_counts(judgment: Judgment) -> str:
    counts = ", ".join(f"{count} {grade}" for grade, count in sorted(judgment.counts().items()))
    return f"{counts} (fallback {judgment.policy.fail}; --fallback off scores as the Go plugins do)"


def _as_document(
    scores: Scores,
    ranked: Sequence[str],
    obstacles: Mapping[str, str],
    snapshot: WatcherMetrics | None,
    expected: Mapping[str, Any] | None,
) -> dict[str, Any]:
    weights = {name: part.weighted.weight for name, part in scores.plugins.items()}
    return {
        "pod": f"{scores.pod.namespace}/{scores.pod.name}",
        "window": asdict(snapshot.window) if snapshot else None,
        "source": snapshot.source if snapshot else None,
        **({} if expected is None else {"expected": expected}),
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
