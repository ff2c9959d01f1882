"""Access to the kubelets: bounded concurrency, a deadline for each request, and errors with remedies."""

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

import requests

from runtime.http import budget
from runtime.http.failures import FailureKind, describe
from runtime.http.gather import Deadline, gather
from runtime.http.session import BoundedSession, UnexpectedResponse
from runtime.kubernetes.addresses import https_origin
from runtime.kubernetes.api import SERVICE_ACCOUNT, KubernetesApi
from runtime.kubernetes.paths import object_path
from watcher.errors import ProviderAnswerError, ProviderRefused
from watcher.providers.kubelet.readings import (
    ContainerReading,
    NodeReading,
    containers_of_metrics,
    containers_of_summary,
    node_of_metrics,
    node_of_summary,
)
from watcher.providers.kubernetes_nodes import PATH_ANNOTATION, ListedNode
from watcher.settings import KubeletSettings, ProviderSettings

Value = TypeVar("Value")
_SUMMARY, _METRICS = "/stats/summary", "/metrics/resource"
_PATH = re.compile(r"(/(?!\.+(/|$))[\w.~-]+)+", re.ASCII)  # no ".." that leads from a node's proxy to other objects
_NOT_SERVED = {403, 404, 405}  # status of a kubelet without the Summary API, or that refuses it to this account
_RULE = 'apiGroups: [""], resources: ["nodes/metrics", "nodes/stats"], verbs: ["get"]'
_PROXY_RULE = 'apiGroups: [""], resources: ["nodes/proxy"], verbs: ["get"]'
_NO_AUTHORITY = (
    "no kubelet is asked: outside of a cluster no certificate authority for kubelets is known, and a node may name any "
    "host as its own. Set kubelet.ca_file to the cluster's CA (or provider.ca_file, for the API server and kubelets), "
    "or choose kubelet.insecure_skip_verify, which sends the token to any host, or kubelet.through_api_server"
)
#: Warning about the right that access through the API server needs.
PROXY_WARNING = (
    "the right nodes/proxy, which kubelet.through_api_server needs, also lets its holder run commands in all pods"
)


class Kubelets:
    """Client of all kubelets of a cluster. Thread-safe.

    Args:
        api: client of the API server, whose token the kubelets accept, too.
        settings: settings of the provider.
        provider: general settings of providers, for the client certificate and the default CA.
        certificate: client certificate as ``requests`` expects it; None for no certificate.
    """

    def __init__(
        self,
        api: KubernetesApi,
        settings: KubeletSettings,
        provider: ProviderSettings,
        certificate: str | tuple[str, str] | None,
    ) -> None:
        self._api, self._settings = api, settings
        cluster = SERVICE_ACCOUNT / "ca.crt"
        authorities = settings.ca_file or provider.ca_file or (cluster if cluster.exists() else None)
        verify = str(authorities) if authorities is not None else True
        self._may_ask = authorities is not None or settings.insecure_skip_verify or settings.through_api_server
        self._session = BoundedSession(
            self._authenticate,
            verify=False if settings.insecure_skip_verify else verify,
            certificate=certificate,
            follow_redirects=False,
        )
        self._without_summary: dict[str, str] = {}  # node name to the reason
        self._late: set[str] = set()

    @property
    def without_summary(self) -> Mapping[str, str]:
        """Names of the nodes whose kubelets do not serve the Summary API to this account, with the reasons."""
        return dict(self._without_summary)

    def read_each(
        self, nodes: Mapping[str, ListedNode], read: Callable[[str, ListedNode, Deadline], Value], deadline: Deadline
    ) -> dict[str, Value | Exception]:
        """Read all nodes, several at a time; return the result or the exception of each node.

        Nodes that did not answer last time come last, so that their timeouts do not delay the others beyond the
        deadline.

        Args:
            nodes: the nodes by name.
            read: reads one node by a deadline.
            deadline: deadline for all nodes.

        Raises:
            ProviderRefused: the certificates of kubelets cannot be verified, and the settings do not skip this.
        """
        if not self._may_ask:
            raise ProviderRefused(_NO_AUTHORITY)
        pending = deque(sorted(nodes, key=lambda name: name in self._late))
        results: dict[str, Value | Exception] = {}

        def work() -> None:
            while pending and deadline.remaining_seconds():
                try:
                    name = pending.popleft()
                except IndexError:  # another thread took the last one
                    return
                seconds = min(self._settings.timeout_seconds, deadline.remaining_seconds())
                try:
                    with budget.released():  # decoded readings take a small part of the response's memory
                        results[name] = read(name, nodes[name], Deadline.after(seconds))
                except Exception as error:  # noqa: BLE001  the caller judges every failure
                    results[name] = error

        workers = range(min(self._settings.concurrency, len(nodes)))
        gather(dict.fromkeys(workers, work), deadline)
        complete = {name: results.get(name, TimeoutError("no answer before the deadline")) for name in nodes}
        self._late = {
            name
            for name, result in complete.items()
            if isinstance(result, Exception) and not isinstance(result, requests.HTTPError)
        }
        return complete

    def read_node(self, name: str, node: ListedNode, deadline: Deadline) -> NodeReading:
        """Return the reading of a node.

        Raises:
            Exception: the kubelet has no usable answer; :meth:`explain` returns the remedy.
        """
        body, is_summary = self._read(name, node, deadline)
        return node_of_summary(body, name) if is_summary else node_of_metrics(body, time.time())

    def read_containers(self, name: str, node: ListedNode, deadline: Deadline) -> list[ContainerReading]:
        """Return the readings of a node's containers; raises as :meth:`read_node` does."""
        body, is_summary = self._read(name, node, deadline, only_cpu_and_memory=True)
        return [*(containers_of_summary(body, name) if is_summary else containers_of_metrics(body, time.time()))]

    def retry_summaries(self) -> None:
        """Try the Summary API of all nodes again: rights may have been granted, and kubelets upgraded."""
        self._without_summary.clear()

    def explain(self, error: Exception) -> str:
        """Return the reason why a kubelet has no usable answer, with a remedy where one is known."""
        failure = describe(error)
        proxied = self._settings.through_api_server
        remedies = {
            FailureKind.UNTRUSTED_CERTIFICATE: "set kubelet.ca_file, or let the cluster's CA sign the certificates of "
            "kubelets (serverTLSBootstrap); kubelet.insecure_skip_verify sends the token to any host that answers",
            FailureKind.TIMEOUT: "it did not answer within 5 s, or in time (watch.fetch_timeout_seconds)",
            FailureKind.UNREACHABLE: "does a firewall or network policy block the kubelet's port?",
        }
        remedy = remedies.get(failure.kind, "")
        if failure.status == 401:
            remedy = "the kubelet does not accept the token: authentication.webhook must be enabled in its settings"
        elif failure.status == 403:
            remedy = f"a ClusterRole bound to this user needs the rule {{{_PROXY_RULE if proxied else _RULE}}}"
        return f"{failure.reason}; {remedy}" if remedy else failure.reason

    def close(self) -> None:
        """Cancel all current requests, and close the connections."""
        self._session.close()

    def _read(
        self, name: str, node: ListedNode, deadline: Deadline, *, only_cpu_and_memory: bool = False
    ) -> tuple[bytes, bool]:
        """Return a kubelet's response, and whether it is a summary."""
        if node.resource_path:  # several nodes share a kubelet, whose summary would be that of another node
            if not _PATH.fullmatch(node.resource_path):
                raise ProviderAnswerError(f"annotation {PATH_ANNOTATION} is not a path: {node.resource_path[:80]!r}")
            return self._get(name, node, node.resource_path, deadline), False
        if name not in self._without_summary:
            query = "?only_cpu_and_memory=true" if only_cpu_and_memory or self._settings.only_cpu_and_memory else ""
            try:
                return self._get(name, node, _SUMMARY + query, deadline), True
            except requests.HTTPError as error:
                if error.response is None or error.response.status_code not in _NOT_SERVED:
                    raise
                reason = self.explain(error)
        else:
            reason = self._without_summary[name]
        body = self._get(name, node, _METRICS, deadline)
        self._without_summary[name] = reason
        return body, False

    def _get(self, name: str, node: ListedNode, path: str, deadline: Deadline) -> bytes:
        if self._settings.through_api_server:
            return self._api.read(f"{object_path('Node', name, subresource='proxy')}{path}", deadline)
        if not node.address:
            raise ProviderAnswerError("the node has no InternalIP")
        try:
            origin = https_origin(node.address, node.kubelet_port)
        except ValueError as error:
            raise ProviderAnswerError(f"the InternalIP or kubelet port is unusable: {str(error)[:160]}") from None
        response = self._session.request("GET", origin + path, timeout=max(0.1, deadline.remaining_seconds()))
        response.raise_for_status()
        if response.status_code != requests.codes.ok:
            raise UnexpectedResponse(f"the kubelet answered with status {response.status_code}")
        return response.content

    def _authenticate(self, request: requests.PreparedRequest) -> None:
        authorization = self._api.request_headers().get("Authorization")
        if authorization:
            request.headers["Authorization"] = authorization
