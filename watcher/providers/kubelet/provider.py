"""Provider that reads the kubelets: for clusters with neither Prometheus nor metrics-server.

The API server lists the nodes. Each kubelet is queried at ``/stats/summary``. If it refuses this path to the account,
it is queried at ``/metrics/resource``, which has no pressure.

- ``kubelet:cpu:percent``: cores in use since the previous sample, in percent of ``status.capacity``.
- ``kubelet:memory:percent``: the working set, which the kubelet uses for eviction decisions, in percent of capacity.
- ``kubelet:cpu_some_pressure:percent`` and others: percent of the time since the previous sample in which tasks waited.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from runtime.http.failures import FailureKind, describe
from runtime.http.gather import Deadline, within
from runtime.kubernetes.paths import NODES
from runtime.kubernetes.rbac import needed_rule
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.findings import Finding, Kind
from watcher.model import PRESSURES, MetricType, Window
from watcher.providers.base import Check, Reading, Sample, Samples
from watcher.providers.kubelet.access import PROXY_WARNING, Kubelets
from watcher.providers.kubelet.readings import NodeReading
from watcher.providers.kubernetes_nodes import ListedNode, list_nodes
from watcher.providers.session import client_certificate, open_kubernetes, provider_error
from watcher.settings import Settings

if TYPE_CHECKING:
    from watcher.providers.kubelet.containers import ContainerRates
    from watcher.windows.container_use import ContainerUse

NAME = "Kubelet"
_NANO = 1e-9
_CPU, _MEMORY = "kubelet:cpu:percent", "kubelet:memory:percent"
_PRESSURE_NAMES = {
    type_: f"kubelet:{resource}_{kind}_pressure:percent" for (resource, kind), type_ in PRESSURES.items()
}
_NODES_SHARE = 0.5  # share of a fetch's time that listing the nodes may take
_CHECK_SECONDS = 10
_MEASUREMENT_SECONDS, _POLL_SECONDS = 20, 0.5  # kubelets measure every 10 to 15 s
# Setting to change after a failure of this kind; the messages of other failures name their remedies.
_SETTINGS: Final = {
    FailureKind.UNTRUSTED_CERTIFICATE: "kubelet.ca_file",
    FailureKind.TIMEOUT: "watch.fetch_timeout_seconds",
    FailureKind.HANDSHAKE_TIMEOUT: "watch.fetch_timeout_seconds",
}
_ROUNDING_SECONDS = 1
_SHOWN = 3
_NO_PRESSURE = (
    "the kubelet reports none: it needs Kubernetes 1.34 with cgroup v2, Linux 4.20, and on some distributions the boot "
    "parameter psi=1"
)
_log = logging.getLogger(__name__)


class KubeletProvider:
    """Provider that samples all nodes, each at its own kubelet."""

    def __init__(self, settings: Settings) -> None:
        options = self._options = settings.kubelet
        self._api = open_kubernetes(settings.provider)
        self._kubelets = Kubelets(self._api, options, settings.provider, client_certificate(settings.provider))
        self.address = (settings.provider.address or "") if settings.provider.kube_config is None else ""
        self._nodes: dict[str, ListedNode] = {}
        self._list_due_at = -math.inf  # on the monotonic clock
        self._previous: dict[str, NodeReading] = {}
        self._samples: dict[str, Sample] = {}
        self._failed: set[str] = set()  # nodes that could not be read for the last sample
        self._containers: ContainerRates | None = None
        self._lock, self._pods_lock, self._nodes_lock = threading.Lock(), threading.Lock(), threading.Lock()
        if options.through_api_server:
            _log.warning(PROXY_WARNING)

    @property
    def pressure_absence(self) -> str:
        """The usual reason why a node has no pressure."""
        reason = next(iter(self._kubelets.without_summary.values()), "")
        if reason:
            return f"/stats/summary cannot be read: {reason}"
        is_counted = any(reading.pressure_seconds for reading in self._previous.values())
        return "pressure is a rate and needs two measurements of the kubelet" if is_counted else _NO_PRESSURE

    def sample(self, deadline: Deadline) -> Samples:
        """Return the load of every node since the previous sample; a node without load gets a finding.

        A node that was measured once has no rate yet, and is left out, unless the kubelet reports its CPU use.

        Raises:
            ProviderError: no node can be listed or read.
        """
        with self._lock:
            nodes, findings = self._read_nodes(deadline)
            if self._options.insecure_skip_verify and not self._options.through_api_server:
                message = (
                    "the certificates of kubelets are not verified: any host that answers at a node's address receives "
                    "the token; set kubelet.ca_file instead of kubelet.insecure_skip_verify"
                )
                findings.append(Finding(Kind.UNVERIFIED, message))
            samples: dict[str, Sample] = {}
            results = self._kubelets.read_each(nodes, self._kubelets.read_node, deadline)
            nodes, problems = self._listed_again(nodes, results, deadline)
            findings += problems
            for name, result in results.items():
                if isinstance(result, Exception):
                    findings.append(self._unread(name, nodes[name], result))
                    continue
                sample, problem = self._sample(name, nodes[name], result)
                if sample is not None:
                    samples[name] = sample
                if problem:
                    findings.append(Finding(Kind.NO_METRICS, f"{name}: {problem}", node=name))
            for kept in (self._previous, self._samples):
                for name in kept.keys() - nodes.keys():
                    del kept[name]
            if not samples:
                reason = findings[-1].message if findings else "the cluster has no nodes (kubelet.node_selector)"
                answered = any(not isinstance(result, Exception) for result in results.values())
                error = ProviderUnavailable if answered else ProviderAnswerError
                raise error(f"{NAME}: no node has metrics; {reason}")
            return Samples(samples, findings)

    def pod_use(self, window: Window, deadline: Deadline) -> "ContainerUse":
        """Return the newest measurement of every container.

        Raises:
            ProviderError: no kubelet has metrics of containers.
        """
        from watcher.providers.kubelet.containers import ContainerRates  # imports numpy

        with self._pods_lock:
            if self._containers is None:
                self._containers = ContainerRates()
            nodes, findings = self._read_nodes(deadline)
            results = self._kubelets.read_each(nodes, self._kubelets.read_containers, deadline)
            failures = {name: error for name, error in results.items() if isinstance(error, Exception)}
            findings += [self._unread(name, nodes[name], error) for name, error in failures.items()]
            readings = {name: result for name, result in results.items() if not isinstance(result, Exception)}
            use = self._containers.use(readings, window, findings)
            if not len(use):
                reason = findings[-1].message if findings else "no container was measured lately"
                raise ProviderAnswerError(f"{NAME}: no container has metrics; {reason}")
            return use

    def check(self) -> Iterator[Check]:
        """Yield steps for the access to the API, the list of nodes, and the kubelets."""
        yield Check("find the Kubernetes API", ok=True, message=self._api.source, setting="provider.address")
        deadline = Deadline.after(_CHECK_SECONDS)
        try:
            nodes, _ = self._read_nodes(deadline)
        except ProviderError as error:
            yield Check("list nodes", ok=False, message=str(error), setting="provider.address")
            return
        message = f"{len(nodes)} nodes at {self._api.display_address()}"
        yield Check("list nodes", ok=bool(nodes), message=message, setting="kubelet.node_selector")
        if self._options.through_api_server:
            yield Check("access to kubelets", ok=True, message=f"through the API server: {PROXY_WARNING}")
        try:
            results = self._kubelets.read_each(nodes, self._kubelets.read_node, deadline)
        except ProviderRefused as error:
            yield Check("read kubelets", ok=False, message=str(error), setting="kubelet.ca_file")
            return
        errors = {name: error for name, error in results.items() if isinstance(error, Exception)}
        failed = {name: self._kubelets.explain(error) for name, error in errors.items()}
        self._previous = {name: each for name, each in results.items() if isinstance(each, NodeReading)}
        details = tuple(f"{name}: {reason}" for name, reason in failed.items())
        message = f"{len(nodes) - len(failed)} of {len(nodes)} kubelets answer" + "".join(
            f"; {shown}" for shown in _shared_causes(failed)[:_SHOWN]
        )
        kinds = {describe(error).kind for error in errors.values()}
        setting = next((setting for kind, setting in _SETTINGS.items() if kind in kinds), "")
        yield Check("read kubelets", ok=not failed, message=message, setting=setting, details=details)
        self._await_measurement(nodes)

    def _await_measurement(self, nodes: Mapping[str, ListedNode]) -> None:
        """Wait until a kubelet that only reports counters has measured again, so that the next sample has rates."""
        without_rate = [name for name, reading in self._previous.items() if math.isnan(reading.cpu_cores)]
        if not without_rate or len(without_rate) < len(self._previous):
            return
        name = without_rate[0]
        deadline = Deadline.after(_MEASUREMENT_SECONDS)
        with contextlib.suppress(Exception):  # the next sample reports the error
            while deadline.remaining_seconds():
                if self._kubelets.read_node(name, nodes[name], deadline).at > self._previous[name].at:
                    return
                time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Cancel all requests, and close the connections."""
        self._kubelets.close()
        self._api.close()

    def _read_nodes(self, deadline: Deadline) -> tuple[Mapping[str, ListedNode], list[Finding]]:
        """Return the nodes, listed again if they are out of date, and a finding if a later list fails.

        Raises:
            ProviderError: the first list failed.
        """
        with self._nodes_lock:
            if time.monotonic() < self._list_due_at:
                return self._nodes, []
            self._list_due_at = time.monotonic() + self._options.refresh_seconds
            due = Deadline.after(
                _NODES_SHARE * deadline.remaining_seconds() if self._nodes else deadline.remaining_seconds()
            )
            try:
                call = partial(list_nodes, self._api, self._options.node_selector, due)
                self._nodes = within(call, due, give_up=self._api.abort)
            except Exception as error:
                problem = self._translated(error)
                if not self._nodes:
                    self._list_due_at = -math.inf
                    raise problem from error
                return self._nodes, [Finding(Kind.QUERY_FAILED, f"{problem}; the nodes' capacities may be out of date")]
            self._kubelets.retry_summaries()
            return self._nodes, []

    def _listed_again(
        self, nodes: Mapping[str, ListedNode], results: Mapping[str, object], deadline: Deadline
    ) -> tuple[Mapping[str, ListedNode], list[Finding]]:
        """Return the nodes; list them again if a node that could not be read is back, maybe with another capacity."""
        failed = {name for name, result in results.items() if isinstance(result, Exception)}
        is_back = not self._failed.isdisjoint(results.keys() - failed)
        self._failed = failed
        if not is_back:
            return nodes, []
        self._list_due_at = -math.inf
        listed, findings = self._read_nodes(deadline)
        return {**nodes, **listed}, findings

    def _sample(self, name: str, node: ListedNode, now: NodeReading) -> tuple[Sample | None, str]:
        """Return a node's load since its previous reading, and a problem; the previous sample without a new reading."""
        before = self._previous.get(name)
        if before is not None and before.at < node.created:  # the reading is of an earlier machine of this name
            before = None
        if before is not None and before.at == now.at and name in self._samples:
            return self._samples[name], ""
        elapsed = _seconds_between(before, now) if before is not None else 0.0
        if elapsed != 0 or before is None:
            self._previous[name] = now
        self._samples.pop(name, None)
        if missing := [resource for resource in ("cpu", "memory") if resource not in node.capacity]:
            return None, f"status.capacity of the node has no {' and no '.join(missing)}"
        cores = now.cpu_cores
        pressures: dict[MetricType, float] = {}
        if before is not None and elapsed > 0:
            grown = now.cpu_seconds - before.cpu_seconds
            cores = grown / elapsed if grown >= 0 else cores  # the counter begins again after a restart
            pressures = {
                type_: min(1.0, (seconds - before.pressure_seconds[type_]) / elapsed)
                for type_, seconds in now.pressure_seconds.items()
                if seconds >= before.pressure_seconds.get(type_, math.inf)
            }
        if math.isnan(cores):
            return None, "its kubelet has measured it once so far; CPU use is a rate and needs two measurements"
        readings = [Reading(_CPU, MetricType.CPU, 100 * cores / (node.capacity["cpu"] * _NANO))]
        if not math.isnan(now.memory_bytes):
            share = now.memory_bytes / (node.capacity["memory"] * _NANO)
            readings.append(Reading(_MEMORY, MetricType.MEMORY, 100 * share))
        readings += [Reading(_PRESSURE_NAMES[type_], type_, 100 * share) for type_, share in pressures.items()]
        sample = self._samples[name] = Sample(now.at, tuple(readings), node.created)
        return sample, "" if len(readings) > 1 else "its kubelet reports no working set of memory"

    def _unread(self, name: str, node: ListedNode, error: Exception) -> Finding:
        reason = self._kubelets.explain(error) if node.is_ready else "the node is not ready"
        return Finding(Kind.NO_METRICS, f"the kubelet of {name} cannot be read: {reason}", node=name)

    def _translated(self, error: Exception) -> ProviderError:
        """Translate a failed list of nodes into a ProviderError with a remedy."""
        translated = provider_error(NAME, self._api.address or self._api.source, error)
        if getattr(getattr(error, "response", None), "status_code", 0) == 403:
            return type(translated)(f"{translated}; {needed_rule(NODES, 'get', 'list')}")
        return translated


def _seconds_between(before: NodeReading, now: NodeReading) -> float:
    """Return the time between two measurements; negative when the clock of the kubelet was set back.

    The Summary API rounds times down to whole seconds. The kubelet's own rate counts exact times from one measurement
    to the next. When it fits the counter within this rounding, it is the rate between these two.
    """
    rounded = now.at - before.at
    if now.cpu_cores > 0 and rounded > 0:
        exact = (now.cpu_seconds - before.cpu_seconds) / now.cpu_cores
        if abs(exact - rounded) < _ROUNDING_SECONDS:
            return exact
    return rounded


def _shared_causes(failed: Mapping[str, str]) -> list[str]:
    """Return a text for each reason, with the nodes that share it.

    Args:
        failed: reason by name of the node.
    """
    nodes: dict[str, list[str]] = {}
    for name, reason in failed.items():
        nodes.setdefault(reason, []).append(name)
    return [
        f"{names[0] if len(names) == 1 else f'{len(names)} nodes such as {names[0]}'}: {reason}"
        for reason, names in nodes.items()
    ]
