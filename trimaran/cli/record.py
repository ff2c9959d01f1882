"""``trimaran record``: record a cluster as a trace, which the simulator can replay with any placement policy."""

import contextlib
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from runtime import masking
from runtime.http import credentials
from runtime.http.session import BoundedSession
from runtime.terminal import duration_option, echo
from trimaran.cli.options import KubernetesOpener, fail, kubernetes_options, option, path_option
from trimaran.cli.trace_output import check_new, write_or_fail
from trimaran.traces.node_use import write_node_use
from trimaran.traces.recording.history import STEP_SECONDS, PrometheusHistory, RecordingError
from trimaran.traces.recording.prometheus import DirectPrometheus
from trimaran.traces.recording.recording import Recording, read_cluster, record_use
from trimaran.traces.trace import world_name


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--prometheus",
    "address",
    required=True,
    metavar="URL",
    help="Address of the Prometheus with the containers' history.",
)
@duration_option("--last", default="24h", help="Length of the recording.")
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ"]),
    help="End of the recording, in UTC. [default: now]",
)
@duration_option("--warm-up", default="1h", help="First part of the recording, which replays do not measure.")
@duration_option("--rate", default="2m", help="Range of CPU rates: at least twice the scrape interval.")
@click.option("--matchers", default="", help='Label matchers for all series, such as cluster="north".')
@click.option(
    "--node-selector", default="", help="Label selector of the nodes to record, such as pool=web. [default: all nodes]"
)
@option(
    "--minutes-at-once", type=click.IntRange(5, 10_000), default=120, help="Longest time range of a query, in minutes."
)
@path_option("--token-file", help="File with a bearer token for the Prometheus.")
@path_option("--ca-file", help="Certificate authorities to trust for the Prometheus.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="HTTP header of each query, such as X-Scope-OrgID=a; may be repeated.",
)
@kubernetes_options
def record(
    folder: Path,
    address: str,
    last: float,
    until: datetime | None,
    warm_up: float,
    rate: float,
    matchers: str,
    node_selector: str,
    minutes_at_once: int,
    token_file: Path | None,
    ca_file: Path | None,
    headers: tuple[str, ...],
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
    if rate < STEP_SECONDS:
        raise click.UsageError(f"--rate must be at least {STEP_SECONDS} seconds, not {rate:g}")
    check_new(folder)
    now = time.time()
    end = int(now if until is None else until.replace(tzinfo=UTC).timestamp()) // STEP_SECONDS * STEP_SECONDS
    if end > now:
        raise click.UsageError(f"--until {until} is in the future")
    with _session(address, token_file, ca_file, headers) as session:
        history = PrometheusHistory(
            DirectPrometheus(session, address), end - minutes * STEP_SECONDS, minutes, minutes_at_once
        )
        try:
            with kubernetes() as api:
                cluster = read_cluster(api, node_selector)
            with click.progressbar(length=1000, label="history", file=sys.stderr) as bar:
                recording = record_use(
                    world_name(folder), cluster, history, rate_seconds=round(rate), matchers=matchers,
                    warm_up_minutes=warm_up_minutes, progress=lambda share: bar.update(round(1000 * share) - bar.pos),
                )  # fmt: skip
        except RecordingError as error:
            fail(error, 1)
    _write(folder, recording)


def _session(
    address: str, token_file: Path | None, ca_file: Path | None, headers: tuple[str, ...]
) -> contextlib.closing[BoundedSession]:
    if not address.startswith(("http://", "https://")):
        raise click.UsageError(
            f"--prometheus {masking.without_credentials(address)}: must begin with http:// or https://"
        )
    pairs = dict(header.partition("=")[::2] for header in headers)
    if not all(name and value for name, value in pairs.items()):
        raise click.UsageError("--header must be NAME=VALUE")
    if ca_file is not None and not ca_file.is_file():
        raise click.UsageError(f"--ca-file {ca_file}: no such file")
    masking.register_address_secrets(address)
    authenticate = credentials.bearer(lambda: credentials.read_token(token_file) if token_file else "")
    verify = True if ca_file is None else str(ca_file)
    return contextlib.closing(BoundedSession(authenticate, verify=verify, headers=pairs))


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
