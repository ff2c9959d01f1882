"""Kubernetes metrics API: metrics-server, or another server of ``metrics.k8s.io``.

The API only knows the present. ``GET /apis/metrics.k8s.io/v1beta1/nodes`` returns the usage of every node with the time
of the measurement; ``GET /api/v1/nodes`` returns the nodes' capacity. The two published metrics are usage divided by
``status.capacity``, as upstream publishes it and TargetLoadPacking expects it. Allocatable would be wrong: it excludes
the system's reservation, but the usage includes the system.

- ``metrics_server:cpu:percent``: cores in use, averaged by metrics-server over 10 to 60 seconds.
- ``metrics_server:memory:percent``: the working set, which the kubelet uses for eviction decisions.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import requests

from runtime.errors import quoted
from runtime.http.gather import Deadline, gather
from runtime.kubernetes import quantity
from runtime.kubernetes.paths import LISTS, NODES, object_path
from runtime.kubernetes.rbac import needed_rule
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused
from watcher.findings import Action, Finding, Kind
from watcher.model import MetricType, Window
from watcher.providers.base import Check, Reading, Sample, Samples
from watcher.providers.kubernetes_nodes import ListedNode, by_name, list_nodes, member, read_node
from watcher.providers.session import open_kubernetes, provider_error
from watcher.settings import Settings

if TYPE_CHECKING:
    from watcher.windows.container_use import ContainerUse

NAME = "KubernetesMetricsServer"
METRICS, POD_METRICS = LISTS["NodeMetrics"], LISTS["PodMetrics"]
_RESOURCES = {
    "cpu": ("metrics_server:cpu:percent", MetricType.CPU),
    "memory": ("metrics_server:memory:percent", MetricType.MEMORY),
}
_MOST_LOOKUPS = 16  # for more nodes a new list is cheaper than a request for each
_CHECK_SECONDS = 10
_AGAIN_SECONDS = 60  # retry delay after a failed list, if an older list is available
_NO_METRICS_API = (
    "the cluster has no metrics API: install metrics-server (https://github.com/kubernetes-sigs/metrics-server), or "
    "find out why it is gone: kubectl get apiservice v1beta1.metrics.k8s.io"
)
_NO_METRICS_SERVER = (
    "the metrics API is registered, but no server answers for it; for the reason see kubectl get apiservice "
    "v1beta1.metrics.k8s.io and kubectl -n kube-system logs deployment/metrics-server"
)
_HINTS = {404: _NO_METRICS_API, 503: _NO_METRICS_SERVER}
_NO_METRICS_YET = (
    "the metrics API has no metrics of any node: metrics-server needs a minute after its start; after that, see its "
    "log for why it cannot read the kubelets (kubectl -n kube-system logs deployment/metrics-server)"
)


class KubernetesMetricsServerProvider:
    """Provider that samples all nodes through the metrics API."""

    def __init__(self, settings: Settings) -> None:
        options = settings.metrics_server
        self._api = open_kubernetes(settings.provider)
        # The doctor connects to this address with the settings' certificates, so a kubeconfig's address is left out.
        self.address = (settings.provider.address or "") if settings.provider.kube_config is None else ""
        self._chose_not_to_verify = settings.provider.insecure_skip_verify  # unverified() reports this
        self._selector = options.node_selector
        self._refresh_seconds = options.capacity_refresh_seconds
        self._nodes: dict[str, ListedNode] = {}
        self._listed_at = self._list_due_at = -float("inf")  # on the monotonic clock
        self._looked_up: set[str] = set()  # nodes requested since the last list: not requested again before the next
        self._present: frozenset[str] = frozenset()  # nodes with metrics in the last sample
        self._lock = threading.Lock()

    def sample(self, deadline: Deadline) -> Samples:
        """Return the usage of every node that has both metrics and a capacity; each other node gets a finding.

        Raises:
            ProviderError: there are no metrics, or no capacities.
        """
        with self._lock:
            usage, findings = self._read_all(deadline)
            failed = {finding.node for finding in findings if finding.kind is Kind.QUERY_FAILED}
            if "" not in failed:  # a node that could not be read is looked up again
                self._present = frozenset(usage) - failed
            if not self._api.is_verified and not self._chose_not_to_verify:
                message = "the kubeconfig's cluster has insecure-skip-tls-verify: set provider.ca_file"
                findings.append(Finding(Kind.UNVERIFIED, message))
            samples: dict[str, Sample] = {}
            for name, item in usage.items():
                if name in self._nodes:
                    sample, problems = _sample(name, item, self._nodes[name])
                    findings += problems
                    if sample is not None:
                        samples[name] = sample
                elif not self._selector:
                    message = f"{name} has metrics, but the cluster has no such node"
                    findings.append(Finding(Kind.UNMATCHED_NODE, message, node=name, action=Action.DROPPED))
            findings += [_without_metrics(name, node) for name, node in self._nodes.items() if name not in usage]
            if not samples:
                reason = f": {findings[0].message}" if findings else ""
                raise ProviderAnswerError(f"{self._location()}: no node has usable metrics{reason}")
            return Samples(samples, findings)

    def pod_use(self, window: Window, deadline: Deadline) -> "ContainerUse":
        """Return the newest measurement of every container.

        Raises:
            ProviderError: there are no metrics of pods.
        """
        from watcher.providers import pod_metrics  # imports numpy

        try:
            use = pod_metrics.read(self._api, POD_METRICS, window.end, deadline)
        except Exception as error:
            raise self._translated(error) from error
        if not len(use):
            raise ProviderAnswerError(f"{self._location()}: the metrics API has no metrics of any pod")
        return use

    def check(self) -> Iterator[Check]:
        """Yield steps for the access to the API, the lists of node metrics and of nodes, and their comparison."""
        yield Check("find the Kubernetes API", ok=True, message=self._api.source, setting="provider.address")
        deadline = Deadline.after(_CHECK_SECONDS)
        calls: dict[str, Callable[[], dict[str, Any]]] = {
            "list nodes": partial(self._list, deadline),
            "read metrics": partial(self._read, deadline),
        }
        answers = gather(calls, deadline, give_up=self._api.abort)
        for step, answer in answers.items():
            if isinstance(answer, Exception):
                failure = self._translated(answer)
                known = "provider.name" if any(hint in str(failure) for hint in _HINTS.values()) else "provider.address"
                setting = "provider.token" if isinstance(failure, ProviderRefused) else known
                yield Check(step, ok=False, message=str(failure), setting=setting)
            else:
                message = f"{len(answer)} nodes at {self._api.display_address()}"
                message += f"; {_NO_METRICS_YET}" if not answer and step == "read metrics" else ""
                yield Check(step, ok=bool(answer), message=message, setting="metrics_server.node_selector")
        nodes, usage = answers["list nodes"], answers["read metrics"]
        if isinstance(nodes, Exception) or isinstance(usage, Exception):
            return
        without = sorted(nodes.keys() - usage.keys())
        message = f"{len(nodes) - len(without)} of {len(nodes)} nodes have metrics"
        message += f"; without: {', '.join(without[:5])}" if without else ""
        yield Check("every node has metrics", ok=not without, message=message, setting="metrics_server.node_selector")

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _read_all(self, deadline: Deadline) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
        """Return the metrics by node name, and findings; also read the nodes if they are out of date."""
        calls: dict[str, Callable[[], dict[str, Any]]] = {"metrics": partial(self._read, deadline)}
        if time.monotonic() >= self._list_due_at:
            calls["nodes"] = partial(self._list, deadline)
        answers = gather(calls, deadline, give_up=self._api.abort)
        usage, nodes = answers["metrics"], answers.get("nodes")
        if isinstance(usage, Exception):
            raise self._translated(usage)
        if not usage:
            raise ProviderAnswerError(f"{self._location()}: {_NO_METRICS_YET}")
        if isinstance(nodes, Exception):
            if not self._nodes:
                raise self._translated(nodes)
            self._list_due_at = time.monotonic() + min(_AGAIN_SECONDS, self._refresh_seconds)
            minutes = (time.monotonic() - self._listed_at) / 60
            message = f"{self._translated(nodes)}; capacities are {minutes:.0f} minutes old"
            return usage, [Finding(Kind.QUERY_FAILED, message)]
        if nodes is not None:
            self._set_nodes(nodes, usage)
        else:
            # A node that was away may have been created again, with another capacity.
            back = usage.keys() - self._present
            names = ((usage.keys() ^ self._nodes.keys()) - self._looked_up) | back
            return usage, self._look_up(names, usage, deadline)
        return usage, []

    def _set_nodes(self, nodes: dict[str, ListedNode], usage: Collection[str]) -> None:
        self._nodes, self._listed_at = nodes, time.monotonic()
        self._list_due_at = self._listed_at + self._refresh_seconds
        self._looked_up = set(usage) ^ nodes.keys()

    def _look_up(self, names: set[str], usage: Collection[str], deadline: Deadline) -> list[Finding]:
        """Read the given nodes from the API: they are new, or have no metrics and may have been deleted.

        If there are many nodes, or the settings select nodes by label, all nodes are listed instead.

        Args:
            names: names of the nodes to read.
            usage: names of all nodes that have metrics.
            deadline: the deadline of the sample.

        Returns:
            A finding for each failed request; the request is repeated with the next sample.
        """
        if len(names) > _MOST_LOOKUPS or (names and self._selector):
            nodes = gather({"": partial(self._list, deadline)}, deadline, give_up=self._api.abort)[""]
            if isinstance(nodes, Exception):
                return [Finding(Kind.QUERY_FAILED, str(self._translated(nodes)))]
            self._set_nodes(nodes, usage)
            return []
        findings = []
        calls = {name: partial(self._api.get, object_path("Node", name), deadline) for name in sorted(names)}
        for name, answer in gather(calls, deadline, give_up=self._api.abort).items():
            if not isinstance(answer, Exception):
                self._looked_up.add(name)
                self._nodes[name] = read_node(answer)
            elif _status(answer) == 404:
                self._looked_up.add(name)
                self._nodes.pop(name, None)
            else:
                findings.append(Finding(Kind.QUERY_FAILED, str(self._translated(answer)), node=name))
        return findings

    def _read(self, deadline: Deadline) -> dict[str, dict[str, Any]]:
        return dict(by_name(self._api.list_items(METRICS, deadline, labelSelector=self._selector)))

    def _list(self, deadline: Deadline) -> dict[str, ListedNode]:
        return list_nodes(self._api, self._selector, deadline)

    def _location(self) -> str:
        return f"{NAME} at {self._api.display_address()}"

    def _translated(self, error: Exception) -> ProviderError:
        """Translate a failed request into a ProviderError with a remedy, such as the missing RBAC rule."""
        translated = provider_error(NAME, self._api.address or self._api.source, error)
        if not isinstance(error, requests.HTTPError):
            return translated
        status = _status(error)
        path = next((path for path in (METRICS, POD_METRICS) if path in (error.response.url or "")), NODES)
        hint = "" if path == NODES else _HINTS.get(status, "")
        if status in {401, 403} and not self._api.sent_credentials(error):
            hint = "no token was sent: set provider.token_file, provider.token or provider.kube_config"
        elif status == 403:
            hint = needed_rule(path, *(["list"] if path == POD_METRICS else ["get", "list"]))
        elif status == 401:
            hint = f"the token is not valid, or has expired (access through {self._api.source})"
        if not hint:
            return translated
        general = str(translated).removesuffix("; is provider.address right?").removesuffix(" (provider.token)")
        return type(translated)(f"{general}; {hint}")


def _status(error: Exception) -> int:
    return error.response.status_code if isinstance(error, requests.HTTPError) else 0


def _sample(name: str, item: dict[str, Any], node: ListedNode) -> tuple[Sample | None, list[Finding]]:
    """Return a node's usage in percent of its capacity, and findings about unreadable fields.

    The arithmetic is exact up to the final division.
    """
    timestamp = _timestamp(item)
    if timestamp is None:
        timestamp_text = str(item.get("timestamp"))[:40]
        return None, [_bad_value(name, f"{name}: the metrics have no valid timestamp: {quoted(timestamp_text)}")]
    readings, problems = [], []
    for resource, (metric, type_) in _RESOURCES.items():
        text = member(member(item, "usage"), resource)
        try:
            amount = quantity.nano_value(text)
        except ValueError:
            message = f"{name}: usage.{resource} is not a quantity: {str(text)[:40]!r}"
            problems.append(_bad_value(name, message, metric))
            continue
        if resource in node.capacity:
            readings.append(Reading(metric, type_, 100 * amount / node.capacity[resource]))
        else:
            problems.append(_bad_value(name, f"{name}: status.capacity.{resource} of the node is missing or 0", metric))
    return Sample(timestamp, tuple(readings), node.created) if readings else None, problems


def _timestamp(item: dict[str, Any]) -> float | None:
    try:
        at = datetime.fromisoformat(item["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None
    return at.timestamp() if at.tzinfo is not None else None


def _bad_value(name: str, message: str, metric: str = "") -> Finding:
    return Finding(Kind.BAD_VALUE, message, node=name, metric=metric, action=Action.DROPPED)


def _without_metrics(name: str, node: ListedNode) -> Finding:
    reason = "can metrics-server reach its kubelet?" if node.is_ready else "the node is not ready"
    return Finding(Kind.NO_METRICS, f"{name} has no metrics: {reason}", node=name)
