"""``trimaran record``: record a cluster as a trace, which the simulator can replay with any placement policy."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from runtime.terminal import duration_option, echo
from trimaran.cli.options import KubernetesOpener, fail, kubernetes_options
from trimaran.cli.prometheus_options import PrometheusOptions, progress_bar, prometheus_options
from trimaran.cli.trace_output import check_new, history_days_option, write_or_fail
from trimaran.traces.node_use import write_node_use
from trimaran.traces.recording.history import STEP_SECONDS, PrometheusHistory, RecordingError
from trimaran.traces.recording.past import read_past
from trimaran.traces.recording.recording import Recording, read_cluster, record_use
from trimaran.traces.trace import world_name


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@duration_option("--last", default="24h", help="Length of the recording.")
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ"]),
    help="End of the recording, in UTC. [default: now]",
)
@duration_option("--warm-up", default="1h", help="First part of the recording, which replays do not measure.")
@click.option(
    "--node-selector", default="", help="Label selector of the nodes to record, such as pool=web. [default: all nodes]"
)
@history_days_option
@prometheus_options
@kubernetes_options
def record(
    folder: Path,
    last: float,
    until: datetime | None,
    warm_up: float,
    node_selector: str,
    history_days: int,
    prometheus: PrometheusOptions,
    kubernetes: KubernetesOpener,
) -> None:
    """Record a cluster into FOLDER as a trace: its nodes, its pods, and the measured use of each pod.

    \b
    Example: trimaran record monday --prometheus http://prometheus:9090 --kube-config ~/.kube/config --last 24h

    Nodes and pods come from the Kubernetes API, deleted pods from the metrics of kube-state-metrics in the Prometheus,
    and use from its cAdvisor metrics. All access is read-only. The trace contains the names of pods and owners.

    Exit status: 0 if the trace is written, 1 if a source fails or has no pods, 2 if an option cannot be used.
    """
    minutes, warm_up_minutes = round(last / STEP_SECONDS), round(warm_up / STEP_SECONDS)
    if not 0 <= warm_up_minutes < minutes:
        raise click.UsageError(f"--warm-up, {warm_up_minutes} minutes, must be less than --last, {minutes} minutes")
    check_new(folder)
    now = time.time()
    end = int(now if until is None else until.replace(tzinfo=UTC).timestamp()) // STEP_SECONDS * STEP_SECONDS
    if end > now:
        raise click.UsageError(f"--until {until} is in the future")
    begin = end - minutes * STEP_SECONDS
    with prometheus.open() as server:

        def history_of(start: int, length: int) -> PrometheusHistory:
            return PrometheusHistory(server, start, length, prometheus.minutes_at_once)

        try:
            with kubernetes() as api:
                cluster = read_cluster(api, node_selector)
            with progress_bar("history") as progress:
                recording = record_use(
                    world_name(folder), cluster, history_of(begin, minutes), warm_up_minutes=warm_up_minutes,
                    progress=progress, series=prometheus.series,
                )  # fmt: skip
            if history_days:
                with progress_bar("days before") as progress:
                    past = read_past(
                        history_days,
                        history_of,
                        recording.trace,
                        begin,
                        cluster.specs,
                        progress=progress,
                        series=prometheus.series,
                    )
                if past.days < history_days:
                    echo(f"trimaran: the Prometheus has {past.days} of {history_days} days before", err=True)
                recording = replace(recording, trace=replace(recording.trace, history=past.history))
        except RecordingError as error:
            fail(error, 1)
    _write(folder, recording)


def _write(folder: Path, recording: Recording) -> None:
    """Write the trace, and print the number of recorded and omitted pods; exit with status 1 if no pod is recorded."""
    for warning in recording.warnings:
        echo(f"trimaran: {warning}", err=True)
    trace, counts = recording.trace, recording.counts
    if not counts.recorded:
        fail("the recording has no pods: see --matchers, --node-selector, --last and --until", 1)
    write_or_fail(trace, folder)
    write_node_use(recording.node_use, folder)
    summary: dict[str, Any] = {
        "nodes": len(trace.nodes),
        "pods": counts.recorded,
        "minutes": trace.minutes,
        "DaemonSet and static pods subtracted from their nodes": counts.node_bound,
        "pods on other nodes left out": counts.elsewhere,
        "pods without a CPU or memory request": counts.without_requests,
    }
    echo(f"{folder}: " + ", ".join(f"{count} {name}" for name, count in summary.items() if count))
