"""Access to a Prometheus: at its own address, or at its Service through the proxy of the API server."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from runtime import masking
from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.http.session import BoundedSession
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.paths import LISTS, object_path

TIMEOUT_SECONDS = 60.0
_PROBE_SECONDS = 10.0
_LIST_SECONDS = 60.0
#: Beginning of the names of Services with the query API, the widest view first, and the path of the API below them.
_SERVICES: Final = (
    ("thanos-query", ""),
    ("vmselect", "/select/0/prometheus"),
    ("vmsingle", ""),
    ("prometheus-operated", ""),
    ("prometheus-k8s", ""),
    ("prometheus-server", ""),
    ("prometheus", ""),
)
_ENDINGS = ("-prometheus-server", "-prometheus", "-thanos-query")  # names of the charts' own Services
_PORT_NAMES = ("http", "web", "http-web", "http-query")
_NOT_SERVERS = ("alertmanager", "exporter", "operator", "pushgateway", "kube-state-metrics", "adapter")
_NO_SERVER = (
    "no Service of the cluster is a Prometheus (prometheus-operated, prometheus-server, thanos-query, vmselect and "
    "others): give its address with --prometheus"
)


class Prometheus(Protocol):
    """Server with the query API of Prometheus.

    Attributes:
        name: name and address in messages, without credentials.
        hints: remedy by HTTP status.
    """

    name: str
    hints: Mapping[int, str]

    def get(self, route: str, parameters: Mapping[str, Any]) -> Any:
        """Send a query, such as to the route ``query_range``; return the JSON of the response.

        Raises:
            Exception: one of ``runtime.kubernetes.api.REQUEST_FAILURES``.
        """
        ...


class DirectPrometheus:
    """Prometheus at its own address.

    Args:
        session: HTTP session with the credentials.
        address: URL of the Prometheus.
    """

    hints: Mapping[int, str] = {
        401: "see --token-file and --header", 403: "see --token-file and --header", 404: "check the address",
    }  # fmt: skip

    def __init__(self, session: BoundedSession, address: str) -> None:
        self._session, self._address = session, address.rstrip("/")
        self.name = f"Prometheus at {masking.without_credentials(self._address)}"

    def get(self, route: str, parameters: Mapping[str, Any]) -> Any:
        """See :class:`Prometheus`."""
        response = self._session.get(f"{self._address}/api/v1/{route}", params=parameters, timeout=TIMEOUT_SECONDS)
        response.raise_for_status()
        return response.json()


class ProxiedPrometheus:
    """Prometheus at a Service, through the proxy of the API server. This needs the right to get ``services/proxy``.

    Args:
        api: client of the Kubernetes API.
        namespace: namespace of the Service.
        service: name of the Service.
        port: name or number of its port.
        prefix: path of the query API below the Service.
    """

    hints: Mapping[int, str] = {
        403: "the account needs the right to get services/proxy, or give the address with --prometheus",
        503: "the Service has no ready pod",
    }  # fmt: skip

    def __init__(self, api: KubernetesApi, namespace: str, service: str, port: str, prefix: str = "") -> None:
        self._api, self._path = api, object_path("Service", f"{service}:{port}", namespace, "proxy") + prefix
        self.name = f"Prometheus at the Service {namespace}/{service}"

    def get(self, route: str, parameters: Mapping[str, Any]) -> Any:
        """See :class:`Prometheus`."""
        return self._api.get(f"{self._path}/api/v1/{route}", Deadline.after(TIMEOUT_SECONDS), **parameters)

    def check(self) -> str:
        """Return why the server does not answer a query; empty if it does."""
        try:
            self._api.get(f"{self._path}/api/v1/query", Deadline.after(_PROBE_SECONDS), query="vector(1)")
        except REQUEST_FAILURES as error:
            failure = describe(error)
            hint = self.hints.get(failure.status)
            return failure.reason + (f"; {hint}" if hint else "")
        return ""


def find_prometheus(api: KubernetesApi) -> ProxiedPrometheus:
    """Return the first Prometheus among the cluster's Services that answers a query.

    Raises:
        LookupError: there is none; the message names the Services that were tried.
        Exception: one of ``REQUEST_FAILURES``: the Services cannot be listed.
    """
    problems = []
    for candidate in _candidates(api.list_items(LISTS["Service"], Deadline.after(_LIST_SECONDS)), api):
        if not (problem := candidate.check()):
            return candidate
        problems.append(f"{candidate.name}: {problem}")
    raise LookupError("; ".join(problems) or _NO_SERVER)


def _candidates(services: Iterator[Mapping[str, Any]], api: KubernetesApi) -> list[ProxiedPrometheus]:
    """Return the Services that may be a Prometheus, the widest view first."""
    ranked = []
    for service in services:
        metadata, spec = service.get("metadata") or {}, service.get("spec") or {}
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
        if any(word in name for word in _NOT_SERVERS) or not isinstance(spec.get("ports"), list):
            continue
        rank = next((row for row, (start, _) in enumerate(_SERVICES) if name.startswith(start)), None)
        if rank is None and name.endswith(_ENDINGS):
            rank = len(_SERVICES)
        if rank is not None and (port := _port(spec["ports"])):
            prefix = _SERVICES[rank][1] if rank < len(_SERVICES) else ""
            ranked.append((rank, namespace, name, port, prefix))
    return [ProxiedPrometheus(api, *service) for _, *service in sorted(ranked)]


def _port(ports: list[Any]) -> str:
    """Return the port of the query API: the first with a usual name, else the first; empty without ports."""
    known = [port for port in ports if isinstance(port, Mapping) and "port" in port]
    named = [port for port in known if port.get("name") in _PORT_NAMES]
    return next((str(port["port"]) for port in (*named, *known)), "")
