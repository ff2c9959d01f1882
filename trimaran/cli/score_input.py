"""Input of ``trimaran score`` from the watcher: metrics of the nodes, and learned use of workloads."""

import time
from dataclasses import dataclass

import click

from client import WatcherClient
from client.connecting import WatcherCredentials
from client.errors import ClientError, NoMetrics, WatcherUnavailable
from runtime.terminal import echo
from scoring import Pod, Profile, UseLevels
from scoring.load.pod_expectation import PodExpectation
from trimaran.cli.options import connected, fail
from trimaran.cluster.workload_use import MAX_AGE_SECONDS
from watcher.model import WatcherMetrics


@dataclass(frozen=True, slots=True)
class WatcherInput:
    """Metrics and learned use that a pod is scored by.

    Attributes:
        snapshot: metrics of the nodes; None if there are none.
        missing: reason why there are no metrics; "" with metrics.
        levels: learned use of workloads; None if pods count by their requests.
        why_by_requests: reason why pods count by their requests.
        read_at: Unix time of the reading.
    """

    snapshot: WatcherMetrics | None
    missing: str
    levels: UseLevels | None
    why_by_requests: str
    read_at: float

    def expectation(self, pod: Pod) -> PodExpectation:
        """Return the expected use by which a pod is scored."""
        return PodExpectation.of(self.levels, pod, self.read_at, self.why_by_requests)


def read_watcher(
    address: str | None,
    access: WatcherCredentials,
    window: str | None,
    profile: Profile,
    *,
    required: bool,
    learned_use: bool,
) -> WatcherInput:
    """Read metrics and learned use from a watcher; print a warning if it lacks either.

    Exits with status 1 if the watcher refuses, or has no metrics and ``required`` is true.

    Args:
        address: address of the watcher; None to embed one.
        access: credentials for the watcher.
        window: window of the metrics; None for the default window.
        profile: profile to score with.
        required: whether scores need metrics.
        learned_use: whether to read what workloads use.
    """
    if learned_use and address is None:
        raise click.UsageError("--learned-use needs --watcher: a watcher that starts now has not learned anything yet")
    with connected(address, access) as client:
        try:
            snapshot, missing = _metrics(client, window, required=required)
            levels, why = _levels(client, profile) if learned_use else (None, "--learned-use is not set")
        except ClientError as error:
            fail(error, status=1)
    return WatcherInput(snapshot, missing, levels, why, time.time())


def _metrics(client: WatcherClient, window: str | None, *, required: bool) -> tuple[WatcherMetrics | None, str]:
    """Return the metrics and "", or None and the reason why there are none.

    Raises:
        ClientError: the watcher refuses, or there are no metrics and ``required`` is true.
    """
    try:
        return client.metrics(window), ""
    except (NoMetrics, WatcherUnavailable) as error:
        if required:
            raise
        echo(f"trimaran: no metrics: {error}", err=True)
        return None, str(error)


def _levels(client: WatcherClient, profile: Profile) -> tuple[UseLevels | None, str]:
    """Return the learned use of workloads and "", or None and the reason why pods count by their requests.

    Raises:
        ClientError: the watcher refuses.
    """
    if not profile.reads_levels:
        why = "no plugin of the profile scores by learned use; CongestionCost does"
    else:
        try:
            table = client.workloads()
        except (NoMetrics, WatcherUnavailable) as error:
            why = str(error)
        else:
            age = time.time() - table.timestamp
            if age <= MAX_AGE_SECONDS:
                return UseLevels.of_workloads(table), ""
            why = f"the newest round of measurements is {age:.0f} s old"
    echo(f"trimaran: pods count by requests: {why}", err=True)
    return None, why
