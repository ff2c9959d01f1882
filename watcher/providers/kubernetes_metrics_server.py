"""The Kubernetes metrics API: metrics-server, or whatever else serves ``metrics.k8s.io``.

It only knows the present. ``GET /apis/metrics.k8s.io/v1beta1/nodes`` gives what every node uses, under the time it was
measured at; ``GET /api/v1/nodes`` gives what every node has. The two published metrics are use divided by
``status.capacity``, as upstream has it and TargetLoadPacking expects it; allocatable would leave out what is reserved
for the system, although its use is measured too.

- ``metrics_server:cpu:percent``: cores in use, over the 10 to 60 seconds that the metrics server looks at.
- ``metrics_server:memory:percent``: the working set, which is what the kubelet evicts by.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import requests

from runtime.http.gather import Deadline, gather
from runtime.kubernetes import quantity
from runtime.kubernetes.api import Expired
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused
from watcher.findings import Action, Finding, Kind
from watcher.model import MetricType
from watcher.providers.base import Check, Reading, Sample, Samples
from watcher.providers.session import open_kubernetes, provider_error
from watcher.settings import Settings

NAME = "KubernetesMetricsServer"
NODES = "/api/v1/nodes"
METRICS = "/apis/metrics.k8s.io/v1beta1/nodes"
_RESOURCES = {
    "cpu": ("metrics_server:cpu:percent", MetricType.CPU),
    "memory": ("metrics_server:memory:percent", MetricType.MEMORY),
}
_MOST_LOOKUPS = 16  # more nodes than this at once are cheaper to have by a new list
_CHECK_SECONDS = 10
_AGAIN_SECONDS = 60  # after a list that failed while an older one is at hand
_GROUPS = {METRICS: "metrics.k8s.io", NODES: ""}
_HINTS = {
    (METRICS, 404): "the cluster has no metrics API: install metrics-server (https://github.com/kubernetes-sigs/"
    "metrics-server), or see why it is gone: kubectl get apiservice v1beta1.metrics.k8s.io",
    (METRICS, 503): "the metrics API is registered but nobody serves it: kubectl get apiservice v1beta1.metrics.k8s.io "
    "and kubectl -n kube-system logs deployment/metrics-server say why",
}
_NO_METRICS_YET = (
    "the metrics API knows no node: metrics-server needs a minute after its start; if that does not help, its log says "
    "why it cannot read the kubelets (kubectl -n kube-system logs deployment/metrics-server)"
)


@dataclass(frozen=True, slots=True)
class _Node:
    """What is kept of a Node.

    Attributes:
        capacity: resource to billionths of cores or bytes, above 0; what could not be read is left out.
        is_ready: the kubelet reports; unknown counts as ready.
    """

    capacity: Mapping[str, int]
    is_ready: bool


class KubernetesMetricsServerProvider:
    """Samples all nodes through the metrics API."""

    def __init__(self, settings: Settings) -> None:
        own = settings.metrics_server
        self._api = open_kubernetes(settings.provider, own.kube_context)
        # For the doctor's first steps, which go by the settings' certificates; those of a pod or kubeconfig are others.
        self.address = (settings.provider.address or "") if settings.provider.kube_config is None else ""
        self._chose_not_to_verify = settings.provider.insecure_skip_verify  # a finding of its own
        self._selector = own.node_selector
        self._refresh_seconds = own.capacity_refresh_seconds
        self._nodes: dict[str, _Node] = {}
        self._listed_at = self._list_due_at = -float("inf")  # on the monotonic clock
        self._asked: set[str] = set()  # looked up since the last list, and not worth another look
        self._lock = threading.Lock()

    def sample(self, deadline: Deadline) -> Samples:
        """Return the use of every node that has both metrics and a capacity; the others are findings.

        Raises:
            ProviderError: there are no metrics, or no capacities to compare them with.
        """
        with self._lock:
            used, findings = self._ask(deadline)
            if not self._api.is_verified and not self._chose_not_to_verify:
                message = "the kubeconfig's cluster has insecure-skip-tls-verify: set provider.ca_file"
                findings.append(Finding(Kind.UNVERIFIED, message))
            samples: dict[str, Sample] = {}
            for name, item in used.items():
                if name in self._nodes:
                    sample, problems = _sample(name, item, self._nodes[name])
                    findings += problems
                    if sample is not None:
                        samples[name] = sample
                elif not self._selector:
                    findings.append(
                        Finding(
                            Kind.UNMATCHED_NODE, f"{name} has metrics but is no node", node=name, action=Action.DROPPED
                        )
                    )
            findings += [_without_metrics(name, node) for name, node in self._nodes.items() if name not in used]
            if not samples:
                why = f": {findings[0].message}" if findings else ""
                raise ProviderAnswerError(f"{self._where()}: no node has metrics that can be used{why}")
            return Samples(samples, findings)

    def check(self) -> Iterator[Check]:
        """Yield the way in, both lists, and how they fit together."""
        yield Check("find the Kubernetes API", ok=True, message=self._api.found, setting="provider.address")
        deadline = Deadline.after(_CHECK_SECONDS)
        calls: dict[str, Callable[[], dict[str, Any]]] = {
            "list nodes": partial(self._list, deadline),
            "read metrics": partial(self._read, deadline),
        }
        answers = gather(calls, deadline, give_up=self._api.abort)
        for step, answer in answers.items():
            if isinstance(answer, Exception):
                failure = self._failure(answer)
                known = "provider.name" if any(hint in str(failure) for hint in _HINTS.values()) else "provider.address"
                setting = "provider.token" if isinstance(failure, ProviderRefused) else known
                yield Check(step, ok=False, message=str(failure), setting=setting)
            else:
                message = f"{len(answer)} nodes at {self._api.shown_address()}"
                message += f"; {_NO_METRICS_YET}" if not answer and step == "read metrics" else ""
                yield Check(step, ok=bool(answer), message=message, setting="metrics_server.node_selector")
        nodes, used = answers["list nodes"], answers["read metrics"]
        if isinstance(nodes, Exception) or isinstance(used, Exception):
            return
        without = sorted(nodes.keys() - used.keys())
        message = f"{len(nodes) - len(without)} of {len(nodes)} nodes have metrics"
        message += f"; without: {', '.join(without[:5])}" if without else ""
        yield Check("every node has metrics", ok=not without, message=message, setting="metrics_server.node_selector")

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _ask(self, deadline: Deadline) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
        """Return the metrics by node and what went wrong, and bring the nodes up to date."""
        calls: dict[str, Callable[[], dict[str, Any]]] = {"metrics": partial(self._read, deadline)}
        if time.monotonic() >= self._list_due_at:
            calls["nodes"] = partial(self._list, deadline)
        answers = gather(calls, deadline, give_up=self._api.abort)
        used, nodes = answers["metrics"], answers.get("nodes")
        if isinstance(used, Exception):
            raise self._failure(used)
        if not used:
            raise ProviderAnswerError(f"{self._where()}: {_NO_METRICS_YET}")
        if isinstance(nodes, Exception):
            if not self._nodes:
                raise self._failure(nodes)
            self._list_due_at = time.monotonic() + min(_AGAIN_SECONDS, self._refresh_seconds)
            minutes = (time.monotonic() - self._listed_at) / 60
            message = f"{self._failure(nodes)}; capacities are {minutes:.0f} minutes old"
            return used, [Finding(Kind.QUERY_FAILED, message)]
        if nodes is not None:
            self._keep(nodes, used)
        else:
            return used, self._look_up((used.keys() ^ self._nodes.keys()) - self._asked, used, deadline)
        return used, []

    def _keep(self, nodes: dict[str, _Node], used: Collection[str]) -> None:
        self._nodes, self._listed_at = nodes, time.monotonic()
        self._list_due_at = self._listed_at + self._refresh_seconds
        self._asked = set(used) ^ nodes.keys()

    def _look_up(self, odd: set[str], used: Collection[str], deadline: Deadline) -> list[Finding]:
        """Learn about nodes that came since the last list, or lost their metrics, perhaps because they are gone.

        What cannot be had now is a finding, and tried again with the next sample.
        """
        if len(odd) > _MOST_LOOKUPS or (odd and self._selector):
            nodes = gather({"": partial(self._list, deadline)}, deadline, give_up=self._api.abort)[""]
            if isinstance(nodes, Exception):
                return [Finding(Kind.QUERY_FAILED, str(self._failure(nodes)))]
            self._keep(nodes, used)
            return []
        findings = []
        calls = {name: partial(self._api.get, f"{NODES}/{quote(name, safe='')}", deadline) for name in sorted(odd)}
        for name, answer in gather(calls, deadline, give_up=self._api.abort).items():
            if not isinstance(answer, Exception):
                self._asked.add(name)
                self._nodes[name] = _node(answer)
            elif _status(answer) == 404:
                self._asked.add(name)
                self._nodes.pop(name, None)
            else:
                findings.append(Finding(Kind.QUERY_FAILED, str(self._failure(answer)), node=name))
        return findings

    def _read(self, deadline: Deadline) -> dict[str, dict[str, Any]]:
        return dict(_named(self._api.list_items(METRICS, deadline, labelSelector=self._selector)))

    def _list(self, deadline: Deadline) -> dict[str, _Node]:
        with contextlib.suppress(Expired):
            items = self._api.list_items(NODES, deadline, labelSelector=self._selector)
            return {name: _node(item) for name, item in _named(items)}
        # It changed too much between two pages: have it in one.
        items = self._api.list_items(NODES, deadline, labelSelector=self._selector, limit="")
        return {name: _node(item) for name, item in _named(items)}

    def _where(self) -> str:
        return f"{NAME} at {self._api.shown_address()}"

    def _failure(self, error: Exception) -> ProviderError:
        """Translate a failure, with the way out that this API has for it."""
        translated = provider_error(NAME, self._api.address or self._api.found, error)
        if not isinstance(error, requests.HTTPError):
            return translated
        status = _status(error)
        path = METRICS if METRICS in (error.response.url or "") else NODES
        hint = _HINTS.get((path, status), "")
        if status in {401, 403} and not self._api.identified(error):
            hint = "no token was sent: set provider.token_file, provider.token or provider.kube_config"
        elif status == 403:
            rule = f'apiGroups: ["{_GROUPS[path]}"], resources: ["nodes"], verbs: ["get", "list"]'
            hint = f"a ClusterRole bound to this user needs the rule {{{rule}}}"
        elif status == 401:
            hint = f"the token is not valid, or has expired (the way in is {self._api.found})"
        if not hint:
            return translated
        general = str(translated).removesuffix("; is provider.address right?").removesuffix(" (provider.token)")
        return type(translated)(f"{general}; {hint}")


def _status(error: Exception) -> int:
    return error.response.status_code if isinstance(error, requests.HTTPError) else 0


def _part(parent: Any, key: str) -> Any:
    """Return a member of what should be an object, and None where it is not: anything may come from outside."""
    return parent.get(key) if isinstance(parent, dict) else None


def _named(items: Iterator[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield items by the name in their metadata; those without one are about nothing we could serve."""
    for item in items:
        name = _part(_part(item, "metadata"), "name")
        if name and isinstance(name, str):
            yield name, item


def _node(item: Any) -> _Node:
    status = _part(item, "status")
    written, conditions = _part(status, "capacity"), _part(status, "conditions")
    capacity = {}
    for resource in _RESOURCES:
        try:
            amount = quantity.nano_value(_part(written, resource))
        except ValueError:
            continue
        if amount > 0:
            capacity[resource] = amount
    is_ready = not any(
        _part(each, "type") == "Ready" and _part(each, "status") != "True"
        for each in (conditions if isinstance(conditions, list) else ())
    )
    return _Node(capacity, is_ready)


def _sample(name: str, item: dict[str, Any], node: _Node) -> tuple[Sample | None, list[Finding]]:
    """Return a node's use in percent of its capacity, exact until the one division, and what could not be read."""
    timestamp = _timestamp(item)
    if timestamp is None:
        shown = str(item.get("timestamp"))[:40]
        return None, [_bad(name, f"{name}: the metrics say no time they were measured at: {shown!r}")]
    readings, problems = [], []
    for resource, (metric, type_) in _RESOURCES.items():
        written = _part(_part(item, "usage"), resource)
        try:
            used = quantity.nano_value(written)
        except ValueError:
            problems.append(_bad(name, f"{name}: usage.{resource} is no quantity: {str(written)[:40]!r}", metric))
            continue
        if resource in node.capacity:
            readings.append(Reading(metric, type_, 100 * used / node.capacity[resource]))
        else:
            problems.append(_bad(name, f"{name}: status.capacity.{resource} of the node is missing or 0", metric))
    return Sample(timestamp, tuple(readings)) if readings else None, problems


def _timestamp(item: dict[str, Any]) -> float | None:
    try:
        at = datetime.fromisoformat(item["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None
    return at.timestamp() if at.tzinfo is not None else None


def _bad(name: str, message: str, metric: str = "") -> Finding:
    return Finding(Kind.BAD_VALUE, message, node=name, metric=metric, action=Action.DROPPED)


def _without_metrics(name: str, node: _Node) -> Finding:
    why = "is metrics-server able to reach its kubelet?" if node.is_ready else "it is not ready"
    return Finding(Kind.NO_METRICS, f"{name} has no metrics: {why}", node=name)
