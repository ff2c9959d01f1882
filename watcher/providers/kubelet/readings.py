"""Responses of a kubelet, decoded: the Summary API (``/stats/summary``) and ``/metrics/resource``.

Only the needed fields are decoded. The types of the Summary API are in k8s.io/kubelet, ``pkg/apis/stats/v1alpha1``.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from runtime.http.session import UnexpectedResponse
from watcher.model import PRESSURES, MetricType

_NANO, _MICRO, _MILLI = 1e-9, 1e-6, 1e-3
_LINE = re.compile(
    r"""(?P<name>(?:node|container)_(?:cpu_usage_seconds_total|memory_working_set_bytes))
        (?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)(?:\s+(?P<at>-?[0-9]+))?\s*""",
    re.VERBOSE | re.ASCII,
)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="([^"\\]*)"', re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeReading:
    """Counters and present values of a node.

    Attributes:
        at: time of the measurement of CPU by the kubelet's clock, Unix seconds.
        cpu_seconds: CPU time since boot, in seconds of a core; NaN if unknown.
        cpu_cores: the kubelet's own rate of CPU over its last interval; NaN if unknown.
        memory_bytes: the working set; NaN if unknown.
        pressure_seconds: seconds since boot in which tasks waited, by type; a pressure that is not counted is absent.
    """

    at: float
    cpu_seconds: float
    cpu_cores: float
    memory_bytes: float
    pressure_seconds: Mapping[MetricType, float] = field(default_factory=dict)


class ContainerReading(NamedTuple):
    """Counters and present values of a container.

    Attributes:
        namespace: namespace of the pod.
        pod: name of the pod.
        container: name of the container.
        at: time of the measurement of CPU by the kubelet's clock, Unix seconds.
        cpu_seconds: CPU time since the start, in seconds of a core; None if unknown.
        cpu_cores: the kubelet's own rate of CPU over its last interval; None if unknown.
        memory_bytes: the working set; None if unknown.
        waiting_seconds: time since the start in which some task waited for CPU, in seconds; None if unknown.
        waiting: share of the last five minutes in which some task waited for CPU; None if unknown.
    """

    namespace: str
    pod: str
    container: str
    at: float
    cpu_seconds: float | None = None
    cpu_cores: float | None = None
    memory_bytes: float | None = None
    waiting_seconds: float | None = None
    waiting: float | None = None


class _Psi(msgspec.Struct, gc=False):
    total: Any = None
    avg300: Any = None


class _PsiKinds(msgspec.Struct, gc=False):
    some: _Psi | None = None
    full: _Psi | None = None


class _Stats(msgspec.Struct, gc=False, rename="camel"):
    time: str = ""
    usage_core_nano_seconds: Any = None
    usage_nano_cores: Any = None
    working_set_bytes: Any = None
    psi: _PsiKinds | None = None


class _Container(msgspec.Struct, gc=False):
    name: str
    cpu: _Stats | None = None
    memory: _Stats | None = None


class _PodReference(msgspec.Struct, gc=False):
    name: str
    namespace: str


class _Pod(msgspec.Struct, gc=False, rename="camel"):
    pod_ref: _PodReference
    containers: list[_Container] | None = None


class _NodeName(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Node(_NodeName, rename="camel"):
    cpu: _Stats | None = None
    memory: _Stats | None = None
    io: _Stats | None = None


class _NodeSummary(msgspec.Struct):
    node: _Node


class _PodSummary(msgspec.Struct):
    pods: list[_Pod] | None
    node: _NodeName = msgspec.field(default_factory=_NodeName)


_NODE_DECODER, _POD_DECODER = msgspec.json.Decoder(_NodeSummary), msgspec.json.Decoder(_PodSummary)


def node_of_summary(body: bytes, name: str) -> NodeReading:
    """Return the reading of the node of this name from the Summary API.

    ``psi.total`` is in microseconds, although its documentation says nanoseconds: cAdvisor copies the kernel's figure.
    A kubelet on a kernel that does not count pressure reports 0 for all of it. Some task has waited for CPU on every
    node since it was booted, so this 0 shows that the pressures are unknown.

    Raises:
        UnexpectedResponse: the response is not a summary, is that of another node, or has no time of the measurement
            of CPU.
    """
    node = _decoded(_NODE_DECODER, body, "a summary of a node").node
    _check_name(node, name)
    stats = {"cpu": node.cpu, "memory": node.memory, "io": node.io}
    cpu, memory = node.cpu or _Stats(), node.memory or _Stats()
    totals = {
        type_: _amount(getattr(of.psi, kind).total) * _MICRO
        for (resource, kind), type_ in PRESSURES.items()
        if (of := stats[resource]) is not None and of.psi is not None and getattr(of.psi, kind) is not None
    }
    counts_pressure = totals.get(MetricType.CPU_PRESSURE, 0) > 0
    return NodeReading(
        _seconds(cpu.time),
        _amount(cpu.usage_core_nano_seconds) * _NANO,
        _amount(_own_rate(cpu)) * _NANO,
        _amount(memory.working_set_bytes),
        {type_: total for type_, total in totals.items() if not math.isnan(total)} if counts_pressure else {},
    )


def containers_of_summary(body: bytes, name: str | None = None) -> Iterator[ContainerReading]:
    """Yield the readings of all containers on the node, except those without a time.

    Args:
        body: the response.
        name: name of the node that was asked; None to take the summary of any node.

    Raises:
        UnexpectedResponse: the response is not a summary from the Summary API, or is that of another node.
    """
    summary = _decoded(_POD_DECODER, body, "a summary of pods")
    if name is not None:
        _check_name(summary.node, name)
    for pod in summary.pods or ():
        for container in pod.containers or ():
            cpu, memory = container.cpu or _Stats(), container.memory or _Stats()
            try:
                at = _seconds(cpu.time)
            except UnexpectedResponse:
                continue
            some = (cpu.psi or _PsiKinds()).some or _Psi()
            counts_waiting = _amount(some.total) > 0
            yield ContainerReading(
                pod.pod_ref.namespace,
                pod.pod_ref.name,
                container.name,
                at,
                _known(cpu.usage_core_nano_seconds, _NANO),
                _known(_own_rate(cpu), _NANO),
                _known(memory.working_set_bytes, 1.0),
                *((_known(some.total, _MICRO), _known(some.avg300, 0.01)) if counts_waiting else (None, None)),
            )


def node_of_metrics(body: bytes, now: float) -> NodeReading:
    """Return a node's reading from ``/metrics/resource``; ``now``, Unix seconds, is used for lines without a time.

    Raises:
        UnexpectedResponse: the response has no CPU time of the node.
    """
    found: dict[str, tuple[float, float]] = {}
    for name, labels, value, at in _lines(body, "node_", now):
        if not labels:
            found[name] = (value, at)
    if "node_cpu_usage_seconds_total" not in found:
        raise UnexpectedResponse("the response has no node_cpu_usage_seconds_total")
    seconds, at = found["node_cpu_usage_seconds_total"]
    memory, _ = found.get("node_memory_working_set_bytes", (math.nan, at))
    return NodeReading(at, _amount(seconds), math.nan, _amount(memory))


def containers_of_metrics(body: bytes, now: float) -> Iterator[ContainerReading]:
    """Yield the readings of all containers from ``/metrics/resource``; ``now`` as for :func:`node_of_metrics`."""
    found: dict[tuple[str, str, str], dict[str, tuple[float, float]]] = {}
    for name, labels, value, at in _lines(body, "container_", now):
        if labels.keys() >= {"namespace", "pod", "container"}:
            key = (labels["namespace"], labels["pod"], labels["container"])
            found.setdefault(key, {})[name] = (value, at)
    for key, values in found.items():
        seconds, at = values.get("container_cpu_usage_seconds_total", (None, now))
        memory, _ = values.get("container_memory_working_set_bytes", (None, at))
        yield ContainerReading(*key, at, cpu_seconds=seconds, memory_bytes=memory)


def _lines(body: bytes, prefix: str, now: float) -> Iterator[tuple[str, dict[str, str], float, float]]:
    """Yield name, labels, value and time of each line about CPU or memory whose name has the prefix."""
    for line in body.decode("utf-8", "replace").splitlines():
        if line.startswith(prefix) and (match := _LINE.fullmatch(line)):
            try:
                value = float(match["value"])
            except ValueError:
                continue
            at = int(match["at"]) * _MILLI if match["at"] else now
            yield match["name"], dict(_LABEL.findall(match["labels"] or "")), value, at


def _decoded(decoder: "msgspec.json.Decoder[Any]", body: bytes, what: str) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnexpectedResponse(f"the response is not {what}: {error}") from None


def _check_name(node: _NodeName, name: str) -> None:
    """Refuse the summary of another node: if two nodes name one address, each could get the load of the other."""
    if node.node_name not in {"", name}:
        raise UnexpectedResponse(f"the summary is of another node, {node.node_name[:80]!r}")


def _own_rate(cpu: _Stats) -> Any:
    """Return the kubelet's own rate of CPU; None if it is 0 although CPU time was used.

    The kubelet reports 0 when it is asked twice within one of its measurements
    (https://github.com/kubernetes/kubernetes/issues/122092). An idle container soon gets its rate from the counter.
    """
    rate = cpu.usage_nano_cores
    return None if rate == 0 and _amount(cpu.usage_core_nano_seconds) > 0 else rate


def _amount(value: Any) -> float:
    """Return a number that is finite and at least 0; NaN for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < math.inf else math.nan


def _known(value: Any, unit: float) -> float | None:
    """Return a value times its unit; NaN if it is not a valid amount, None if it is missing."""
    return None if value is None else _amount(value) * unit


def _seconds(time: str) -> float:
    try:
        at = datetime.fromisoformat(time)
    except ValueError:
        raise UnexpectedResponse(f"the time of the measurement is not valid: {time[:40]!r}") from None
    if at.tzinfo is None:
        raise UnexpectedResponse(f"the time of the measurement has no time zone: {time[:40]!r}")
    return at.timestamp()
