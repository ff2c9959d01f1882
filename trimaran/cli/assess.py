"""``trimaran assess``: what load-aware placement would do for a cluster, from its past, with nothing installed."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import click

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.terminal import duration_option, echo, echo_document, output_option
from trimaran.assessment.assess import assess as assessed
from trimaran.assessment.model import Assessment, AssessmentProblem, Change, Effect, Prices
from trimaran.assessment.text import show
from trimaran.cli.options import (
    KUBE_CONFIG_HELP,
    FiniteRange,
    KubernetesOpener,
    fail,
    kubernetes_api,
    option,
    path_option,
)
from trimaran.cli.policy_choice import read_configuration
from trimaran.cli.prometheus_options import PrometheusOptions, progress_bar, prometheus_options
from trimaran.cli.trace_output import check_new, write_or_fail
from trimaran.traces.node_use import read_node_use, write_node_use
from trimaran.traces.problems import TraceError
from trimaran.traces.reading import read_trace
from trimaran.traces.recording.history import STEP_SECONDS, PrometheusHistory, RecordingError
from trimaran.traces.recording.prometheus import Prometheus, find_prometheus
from trimaran.traces.recording.recording import Recording, read_cluster, record_use
from watcher.commands import load_or_exit
from watcher.settings import WatcherSettings
from watcher.usage.sources.autoscalers import AutoscalerLists
from watcher.usage.sources.known_autoscalers import KnownAutoscalers

STATUS = {Effect.GAIN: 0, Effect.NONE: 3, Effect.HARM: 4}
_LIST_SECONDS = 60.0
_WARM_UP_MINUTES = 60
_READS = (
    "trimaran: reading nodes, pods, Services and autoscalers from the Kubernetes API, and the use of pods from "
    "Prometheus; nothing is written to the cluster"
)

_NEEDS_DAYS = (
    "trimaran: {} has no past: hot times, requests that are not needed, and replays need days of Prometheus. To record "
    "days without one, run a watcher (trimaran watch) for a week, then: trimaran workloads --watcher URL"
)


@dataclass(frozen=True)
class _Past:
    """Recorded past of a cluster.

    Attributes:
        folder: folder of the trace.
        source: where it was read.
        problems: problems that the recording has shown.
        autoscalers: autoscalers of the cluster.
    """

    folder: Path
    source: str
    problems: tuple[AssessmentProblem, ...]
    autoscalers: KnownAutoscalers


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@duration_option("--last", default="7d", help="Length of the past to read.")
@prometheus_options
@path_option("--config", "config", help="KubeSchedulerConfiguration to replay. [default: that of the manifests]")
@click.option("--cpu-hour-price", type=FiniteRange(0), help="Price of a core for an hour.")
@click.option("--gib-hour-price", type=FiniteRange(0), help="Price of a GiB of memory for an hour.")
@click.option("--no-replay", is_flag=True, help="Leave out the replays, which take the most time.")
@click.option(
    "--provider",
    help="Judge the present only, by this provider, such as KubernetesMetricsServer or Kubelet. [default: the past, "
    "by Prometheus]",
)
@option("--jobs", default=1, help="Number of processes of the replays; -1 for all processors.")
@path_option("--html", help="Also write a self-contained HTML page to this file.")
@path_option("--keep", help="Keep the recording in this folder, for trimaran assess FOLDER and trimaran simulate.")
@path_option("--kube-config", help=KUBE_CONFIG_HELP)
@click.option("--kube-context", default="", help="Context of the kubeconfig. [default: the current context]")
@output_option("text", "json", "yaml")
def assess(
    folder: Path | None,
    last: float,
    prometheus: PrometheusOptions,
    config: Path | None,
    cpu_hour_price: float | None,
    gib_hour_price: float | None,
    provider: str | None,
    jobs: int,
    html: Path | None,
    keep: Path | None,
    kube_config: Path | None,
    kube_context: str,
    output: str,
    *,
    no_replay: bool,
) -> None:
    """Say what load-aware placement would do for a cluster, from its past, with nothing installed.

    Reads the last days of the cluster of the kubeconfig from its Prometheus, which it finds by its Service, or from
    the recording in FOLDER. Shows problems of metrics and requests, hot nodes, what is requested but not needed, and
    what the extender, the rebalancer and recommended requests would have done in these days.

    \b
    Example: trimaran assess --kube-config ~/.kube/config --html assessment.html
             trimaran assess --prometheus http://prometheus:9090 --last 3d --cpu-hour-price 0.03
             trimaran assess --provider KubernetesMetricsServer

    Exit status: 0 if placing by load would have given fewer hot minutes, 3 if there is no clear difference, 4 if it
    would have harmed, 1 if a source cannot be read, 2 if an option cannot be used.
    """
    if folder is not None and (prometheus.address or keep):
        raise click.UsageError("FOLDER is a recording: leave out --prometheus and --keep")
    if provider is not None:
        _judge_the_present(provider, kube_config, output)
    configuration = read_configuration("configured", config) if config else ""
    if html is not None:
        _check_writable(html)  # before minutes of reading
    past: AbstractContextManager[_Past]
    if folder is not None:
        unknown = KnownAutoscalers(unchecked=("HPA and VPA (a recording does not contain them)",))
        past = nullcontext(_Past(folder, f"the recording in {folder}", (), unknown))
    else:
        past = _recorded(partial(kubernetes_api, kube_config, kube_context), prometheus, last, keep)
    try:
        with past as read:
            trace = read_trace(read.folder)
            assessment = assessed(
                read.folder,
                trace,
                read_node_use(read.folder, trace),
                source=read.source,
                found=read.problems,
                autoscalers=read.autoscalers,
                prices=Prices(cpu_hour_price, gib_hour_price),
                configuration=configuration,
                jobs=jobs,
                with_replays=not no_replay,
            )
    except TraceError as error:
        fail(error, 2)
    except KeyboardInterrupt:
        fail("interrupted", 1)
    if html is not None:
        from trimaran.assessment.page import write_page

        try:
            write_page(assessment, html, f"trimaran {version('trimaran')}: {shlex.join(sys.argv[1:])}")
        except OSError as error:
            fail(f"cannot write {html}: {error.strerror}", 2)
    if output == "text":
        show(assessment)
    else:
        echo_document(assessment.as_document(), output)
    raise SystemExit(_status(assessment))


def _judge_the_present(provider: str, kube_config: Path | None, output: str) -> NoReturn:
    """Print the verdict on the present load, and what needs days; exit with the status of the verdict."""
    from trimaran.cli.worth_it import report_benefit  # imports the whole watcher

    flags = {"provider.name": provider, "provider.kube_config": None if kube_config is None else str(kube_config)}
    settings = load_or_exit(WatcherSettings, None, (), flags).settings
    status = report_benefit(settings, None, (None, None, None), output)
    echo(_NEEDS_DAYS.format(provider), err=True)
    raise SystemExit(status)


def _check_writable(html: Path) -> None:
    try:
        html.open("a").close()
    except OSError as error:
        fail(f"cannot write {html}: {error.strerror}", 2)


@contextmanager
def _recorded(
    kubernetes: KubernetesOpener, options: PrometheusOptions, last: float, keep: Path | None
) -> Iterator["_Past"]:
    """Record the cluster of the kubeconfig into a folder, which is removed at the end unless it is kept."""
    minutes = round(last / STEP_SECONDS)
    if minutes <= 2 * _WARM_UP_MINUTES:
        raise click.UsageError(f"--last must be more than {2 * _WARM_UP_MINUTES} minutes, not {minutes}")
    if keep is not None:
        check_new(keep)
    echo(_READS, err=True)
    end = int(time.time()) // STEP_SECONDS * STEP_SECONDS
    with kubernetes() as api, options.open() if options.address else nullcontext() as given:
        server = given or _found(api)
        echo(f"trimaran: {server.name}", err=True)
        autoscalers = AutoscalerLists(api).read(Deadline.after(_LIST_SECONDS))
        recording = _record(api, server, options, end - STEP_SECONDS * minutes, minutes)
    problems = tuple(AssessmentProblem("recording", warning, "see docs/simulator.md") for warning in recording.warnings)
    with TemporaryDirectory() as temporary:
        folder = keep or Path(temporary) / "cluster"
        write_or_fail(recording.trace, folder)
        write_node_use(recording.node_use, folder)
        yield _Past(folder, server.name, problems, autoscalers)


def _found(api: KubernetesApi) -> Prometheus:
    try:
        return find_prometheus(api)
    except LookupError as error:
        fail(error.args[0], 1)
    except REQUEST_FAILURES as error:
        fail(f"the Services cannot be listed to find Prometheus: {describe(error).reason}; give --prometheus URL", 1)


def _record(api: KubernetesApi, server: Prometheus, options: PrometheusOptions, begin: int, minutes: int) -> Recording:
    history = PrometheusHistory(server, begin, minutes, options.minutes_at_once)
    try:
        cluster = read_cluster(api)
        with progress_bar("reading the past") as progress:
            recording = record_use(
                "cluster", cluster, history, series=options.series, warm_up_minutes=_WARM_UP_MINUTES, progress=progress
            )
    except RecordingError as error:
        fail(error, 1)
    if not recording.counts.recorded:
        fail("the recording has no pods: see --matchers and --last", 1)
    return recording


def _status(assessment: Assessment) -> int:
    """Return the exit status; without replays 0."""
    effect = next((each.effect for each in assessment.outcomes if each.change is Change.EXTENDER), None)
    return 0 if effect is None else STATUS[effect]
