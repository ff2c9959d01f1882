"""Request and response bodies of kube-scheduler's extender API.

Source: ``ExtenderArgs`` and ``HostPriorityList`` of k8s.io/kube-scheduler/extender/v1. Like Go, this module writes keys
with an upper-case initial, such as ``NodeNames``, and reads keys in any case. The candidates are given by name
(``nodeCacheCapable: true``) or as whole Node objects, of which only the names are read.

Decoded JSON can take 40 times the memory of its text (``{},{},{}``), so the memory is estimated before a large body is
decoded, and large bodies are decoded one at a time.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import orjson

from runtime.http.budget import estimate_memory_bytes
from runtime.kubernetes.pod_demand import RequestCache
from runtime.kubernetes.workloads import workload_of
from scoring import Pod, Workload

MAX_CANDIDATES = 200_000
MAX_DECODED_BYTES = 256 << 20  # estimated; whole Node objects take 4 to 6 times the memory of their JSON
_LARGE_BODY_BYTES = 512 << 10  # names of 15,000 nodes; an estimate for each request would take as long as its decoding
_MAX_NAME_LENGTH = 253  # Kubernetes' limit; longer names would enlarge the recorded decisions
_large_body = threading.Lock()
_BEGIN = '{"Host":"'


class BadRequest(ValueError):
    """Error for a body that is not an ExtenderArgs; the message names the bad part."""


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """Request of kube-scheduler: a pod and its candidate nodes.

    Attributes:
        pod: the pod.
        scheduler_name: scheduler name of the pod, which selects the profile.
        node_names: names of the candidates, each once, in the order of the request.
        by_name: whether the request has the names of the candidates, not whole Node objects.
    """

    pod: Pod
    scheduler_name: str
    node_names: tuple[str, ...]
    by_name: bool = True

    @classmethod
    def decode(
        cls,
        body: bytes,
        request_cache: RequestCache | None = None,
        name_workload: Callable[..., Workload] = workload_of,
    ) -> "ExtenderArgs":
        """Decode the JSON body of a prioritize or filter request.

        Args:
            body: bytes of the body.
            request_cache: cache of the resource requests of equal pods; None for no cache.
            name_workload: names the pod's workload, as for :meth:`Pod.from_k8s`.

        Raises:
            BadRequest: the body is not JSON, not an ExtenderArgs, or too large.
        """
        with decoded_fields(body) as fields:
            pod, scheduler_name = _pod_of(fields, request_cache, name_workload)
            names = fields.get("nodenames")
            node_names = _unique_names(names, "NodeNames") if names is not None else _names(fields.get("nodes"))
            return cls(pod, scheduler_name, node_names, names is not None)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], node_names: Sequence[str]) -> "ExtenderArgs":
        """Build the arguments from the fields of a body, which have the pod, and from the names of the candidates.

        Raises:
            BadRequest: the pod is missing, or a candidate has no name.
        """
        return cls(*_pod_of(fields), _unique_names(list(node_names), "NodeNames"))


@contextmanager
def decoded_fields(body: bytes) -> Iterator[dict[str, Any]]:
    """Decode a JSON body, and yield its fields by lower-case name. Callers must not store large parts of the fields.

    Raises:
        BadRequest: the body is not a JSON object, or would take too much memory.
    """
    is_large = len(body) > _LARGE_BODY_BYTES
    if is_large and estimate_memory_bytes(body) > MAX_DECODED_BYTES:
        raise BadRequest(f"the body would take more than {MAX_DECODED_BYTES >> 20} MiB of memory once decoded")
    with _large_body if is_large else nullcontext():
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"the body is not JSON: {error}") from None
        yield _any_case(document, "the body")


def encode(names: Sequence[str], points: Sequence[int]) -> bytes:
    """Return the JSON of a HostPriorityList: the name and the score of every node."""
    joined = "".join(names)
    if names and len(orjson.dumps(joined)) == len(joined) + 2:  # valid Kubernetes names need no escaping
        pieces, between = [""] * (2 * len(names)), {score: f'","Score":{score}}},{_BEGIN}' for score in set(points)}
        pieces[::2], pieces[1::2] = names, map(between.__getitem__, points)
        # Encoding an object for each node takes five times as long. The last piece begins another object: cut it off.
        return f"[{_BEGIN}{''.join(pieces)[: -len(_BEGIN) - 1]}]".encode()
    return orjson.dumps([{"Host": name, "Score": score} for name, score in zip(names, points, strict=True)])


def _pod_of(
    fields: Mapping[str, Any],
    request_cache: RequestCache | None = None,
    name_workload: Callable[..., Workload] = workload_of,
) -> tuple[Pod, str]:
    """Return the pod in a request's fields, and the name of the pod's scheduler."""
    pod = fields.get("pod")
    if not isinstance(pod, dict):
        raise BadRequest("the body has no Pod")
    spec = pod.get("spec")
    scheduler_name = spec.get("schedulerName") if isinstance(spec, dict) else None
    try:
        decoded = Pod.from_k8s(pod, request_cache.lookup if request_cache else None, name_workload)
    except ValueError as error:
        raise BadRequest(f"the Pod cannot be read: {error}") from None
    scheduler_name = str(scheduler_name or "default-scheduler")
    if max(map(len, (decoded.name, decoded.namespace, decoded.uid, scheduler_name))) > _MAX_NAME_LENGTH:
        raise BadRequest(f"the Pod's names and uid must have at most {_MAX_NAME_LENGTH} characters")
    return decoded, scheduler_name


def _names(nodes: object) -> tuple[str, ...]:
    """Return the names of the nodes in a NodeList, each once; empty for None."""
    if nodes is None:
        return ()
    items = _any_case(nodes, "Nodes").get("items")
    names: list[object] = []
    for item in [] if items is None else _sequence(items, "Nodes.items"):
        metadata = item.get("metadata") if isinstance(item, dict) else None
        names.append(metadata.get("name") if isinstance(metadata, dict) else None)
    return _unique_names(names, "Nodes.items")


def _unique_names(value: object, place: str) -> tuple[str, ...]:
    """Return the names in a list, each once; raise BadRequest if one is not a non-empty string."""
    names = _sequence(value, place)
    if len(names) > MAX_CANDIDATES:
        raise BadRequest(f"{place} has {len(names):,} nodes; at most {MAX_CANDIDATES:,} are possible")
    if not set(map(type, names)) <= {str} or not all(names):
        raise BadRequest(f"{place}: the name of each node must be a non-empty string")
    return tuple(dict.fromkeys(names))


def _sequence(value: object, place: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"{place} must be a list")
    return value


def _any_case(document: object, place: str) -> dict[str, Any]:
    """Return the fields of an object by lower-case name. If keys differ only in case, the last one counts, as in Go."""
    if not isinstance(document, dict):
        raise BadRequest(f"{place} must be an object")
    return {key.lower(): value for key, value in document.items()}
