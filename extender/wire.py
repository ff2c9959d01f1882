"""What kube-scheduler sends to an extender, and what it gets back.

Source: ``ExtenderArgs`` and ``HostPriorityList`` of k8s.io/kube-scheduler/extender/v1. Go writes their keys in upper
case and reads them in any; so do others. Nodes come by their names (``nodeCacheCapable: true``) or as whole objects, of
which the names are taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from scoring import Pod

MAX_SCORE = 100


class BadRequest(ValueError):
    """The body is no ExtenderArgs; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod, and the nodes that it may go to.

    Attributes:
        pod: the pod.
        scheduler_name: which profile it asks for.
        node_names: the candidates, each once, in the order they came in.
    """

    pod: Pod
    scheduler_name: str
    node_names: tuple[str, ...]

    @classmethod
    def decode(cls, body: bytes) -> "ExtenderArgs":
        """Read a request's body.

        Raises:
            BadRequest: it is no JSON, or no ExtenderArgs.
        """
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"the body is no JSON: {error}") from None
        fields = _any_case(document, "the body")
        pod = fields.get("pod")
        if not isinstance(pod, dict):
            raise BadRequest("there is no Pod in it")
        spec = pod.get("spec")
        scheduler_name = spec.get("schedulerName") if isinstance(spec, dict) else None
        try:
            read = Pod.from_k8s(pod)
        except (ValueError, TypeError, AttributeError) as error:  # fields of other types than Kubernetes gives them
            raise BadRequest(f"the Pod cannot be read: {error}") from None
        names = fields.get("nodenames")
        found = _listed(names, "NodeNames") if names is not None else _names(fields.get("nodes"))
        return cls(read, str(scheduler_name or "default-scheduler"), found)


def encode(scores: Mapping[str, int]) -> bytes:
    """Return a HostPriorityList: one entry for every node, by its name."""
    return orjson.dumps([{"Host": name, "Score": score} for name, score in scores.items()])


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
