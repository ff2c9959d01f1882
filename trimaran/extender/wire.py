"""What kube-scheduler sends to an extender, and what it gets back.

Source: ``ExtenderArgs`` and ``HostPriorityList`` of k8s.io/kube-scheduler/extender/v1. Go writes their keys in upper
case and reads them in any; so do others. Nodes come by their names (``nodeCacheCapable: true``) or as whole objects, of
which the names are taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from runtime.kubernetes.pod_demand import CountedOnce
from scoring import Pod

MAX_SCORE = 100
_BEGIN = '{"Host":"'
_BETWEEN = [f'","Score":{score}}},{_BEGIN}' for score in range(MAX_SCORE + 1)]


class BadRequest(ValueError):
    """The body is no ExtenderArgs; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod, and the nodes that it may go to.

    Attributes:
        pod: the pod.
        scheduler_name: which profile it asks for.
        node_names: the candidates, each once, in the order they came in.
        by_name: whether they came by their names, and not as whole nodes.
    """

    pod: Pod
    scheduler_name: str
    node_names: tuple[str, ...]
    by_name: bool = True

    @classmethod
    def decode(cls, body: bytes, counted: CountedOnce | None = None) -> "ExtenderArgs":
        """Read a request's body.

        Args:
            body: the bytes.
            counted: where what is counted of pods is kept, if it is.

        Raises:
            BadRequest: it is no JSON, or no ExtenderArgs.
        """
        fields = fields_of(body)
        pod, scheduler_name = _pod_of(fields, counted)
        names = fields.get("nodenames")
        found = _listed(names, "NodeNames") if names is not None else _names(fields.get("nodes"))
        return cls(pod, scheduler_name, found, names is not None)

    @classmethod
    def of(cls, fields: Mapping[str, Any], node_names: Sequence[str]) -> "ExtenderArgs":
        """Read the pod of a body's fields, for candidates that it names in another way.

        Raises:
            BadRequest: there is none, or a candidate has no name.
        """
        return cls(*_pod_of(fields), _listed(list(node_names), "NodeNames"))


def fields_of(body: bytes) -> dict[str, Any]:
    """Return a body's fields by their names in lower case.

    Raises:
        BadRequest: it is no JSON object.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is no JSON: {error}") from None
    return _any_case(document, "the body")


def encode(names: Sequence[str], points: Sequence[int]) -> bytes:
    """Return a HostPriorityList: one entry for every node, with its score, 0 to 100."""
    every_name = "".join(names)
    if names and len(orjson.dumps(every_name)) == len(every_name) + 2:  # as Kubernetes has them: nothing to escape
        pieces = [""] * (2 * len(names))
        pieces[::2], pieces[1::2] = names, map(_BETWEEN.__getitem__, points)
        # An object for each takes five times as long; what would begin the next one is cut off.
        return f"[{_BEGIN}{''.join(pieces)[: -len(_BEGIN) - 1]}]".encode()
    return orjson.dumps([{"Host": name, "Score": score} for name, score in zip(names, points, strict=True)])


def _pod_of(fields: Mapping[str, Any], counted: CountedOnce | None = None) -> tuple[Pod, str]:
    """Return the pod, and which scheduler it is for."""
    pod = fields.get("pod")
    if not isinstance(pod, dict):
        raise BadRequest("there is no Pod in it")
    spec = pod.get("spec")
    scheduler_name = spec.get("schedulerName") if isinstance(spec, dict) else None
    try:
        read = Pod.from_k8s(pod, counted.of if counted else None)
    except (ValueError, TypeError, AttributeError) as error:  # fields of other types than Kubernetes gives them
        raise BadRequest(f"the Pod cannot be read: {error}") from None
    return read, str(scheduler_name or "default-scheduler")


def _names(nodes: object) -> tuple[str, ...]:
    """Return the names of a NodeList."""
    if nodes is None:
        return ()
    items = _any_case(nodes, "Nodes").get("items")
    found: list[object] = []
    for item in [] if items is None else _sequence(items, "Nodes.items"):
        metadata = item.get("metadata") if isinstance(item, dict) else None
        found.append(metadata.get("name") if isinstance(metadata, dict) else None)
    return _listed(found, "names of Nodes.items")


def _listed(names: object, what: str) -> tuple[str, ...]:
    """Return names, each once."""
    found = _sequence(names, what)
    if not set(map(type, found)) <= {str} or not all(found):
        raise BadRequest(f"{what} are not all texts")
    return tuple(dict.fromkeys(found))


def _sequence(value: object, what: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"{what} are no list")
    return value


def _any_case(document: object, what: str) -> dict[str, Any]:
    """Return an object's fields by their names in lower case; of two the last one counts, as in Go."""
    if not isinstance(document, dict):
        raise BadRequest(f"{what} is no object")
    return {key.lower(): value for key, value in document.items()}
