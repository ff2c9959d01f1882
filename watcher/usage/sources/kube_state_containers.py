"""Containers of pods, their requests and restarts from the metrics of kube-state-metrics.

Its init containers include sidecars (init containers that keep running). Since kube-state-metrics 2.14, a label has the
restart policy, which shows the sidecars. With earlier versions, an init container that runs in a running pod counts as
a sidecar: the kubelet reports the phase Running only after all other init containers have finished. kube-state-metrics
does not export requests of a pod as a whole. kube-scheduler exports the sum of all requests of a pod,
``kube_pod_resource_request`` at /metrics/resources; the amount above the requests of the containers is the pod's own.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from runtime.kubernetes.objects import CPU, MAX_AMOUNT, MEMORY
from runtime.kubernetes.workloads import ContainerRole
from watcher.usage.sources.pods import ContainerResources, ContainerRestart, PodKey

Labels = Mapping[str, str]
Ask = Callable[[str, str], Iterable[tuple[Labels, float]]]
"""Function that returns the labels and values of a selector's series; the second argument names labels to keep."""

POD: Final = "namespace,pod"
CONTAINER: Final = "namespace,pod,container"
_SCALES = {CPU: 1000, MEMORY: 1}
_COLUMNS = tuple((kind, resource) for kind in ("requests", "limits") for resource in _SCALES)
_OVERHEAD = {CPU: "kube_pod_overhead_cpu_cores", MEMORY: "kube_pod_overhead_memory_bytes"}
_NO_AMOUNTS: Final = (None,) * len(_COLUMNS)

_Row = list[int | None]  # one amount for each of _COLUMNS
_Amounts = dict[PodKey, dict[str, _Row]]  # by pod and container


@dataclass(frozen=True, slots=True)
class PodContainers:
    """Containers of a pod.

    Attributes:
        containers: the containers, then the sidecars, each in the order of their names.
        init_containers: the other init containers.
        is_complete: whether all containers are listed; if not, containers without requests and limits are missing.
        pod: requests and limits of the pod as a whole; None without any.
        requests: millicores and bytes that kube-scheduler counts for the pod, see :func:`_sums`.
        overhead: part of ``requests`` that the runtime class adds.
        qos_class: the reported QoS class; "" if unknown.
    """

    containers: tuple[ContainerResources, ...] = ()
    init_containers: tuple[ContainerResources, ...] = ()
    is_complete: bool = False
    pod: ContainerResources | None = None
    requests: tuple[int, int] = (0, 0)
    overhead: tuple[int, int] = (0, 0)
    qos_class: str = ""

    @property
    def is_guaranteed(self) -> bool:
        """True for the QoS class Guaranteed: as reported, or computed from requests and limits if it is unknown."""
        if self.qos_class:
            return self.qos_class == "Guaranteed"
        every = (*self.containers, *self.init_containers) if self.pod is None else (self.pod,)
        return bool(every) and all(map(_is_guaranteed, every))


class _InitContainers(NamedTuple):
    """Names of the init containers of each pod, and of those that are sidecars."""

    names: Mapping[PodKey, set[str]]
    sidecars: Mapping[PodKey, set[str]]


def key_of_series(labels: Labels) -> PodKey:
    """Return namespace and name of a series' pod."""
    return PodKey(labels.get("namespace", ""), labels.get("pod", ""))


def series_selector(metric: str, *matchers: str) -> str:
    """Return the selector of a metric's series."""
    return f"{metric}{{{','.join(filter(None, matchers))}}}"


def read_containers(
    ask: Ask, wanted: Container[PodKey], matchers: str, *, are_running: bool
) -> Mapping[PodKey, PodContainers]:
    """Return the containers of pods; a pod of which nothing is known is left out.

    Args:
        ask: queries one metric.
        wanted: the pods.
        matchers: label matchers for all series.
        are_running: whether the pods run now, so that an init container that runs is a sidecar.

    Raises:
        Exception: ``ask`` failed.
    """
    names = _names(ask(series_selector("kube_pod_container_info", matchers), CONTAINER), wanted)
    main = _amounts(ask, "kube_pod_container_resource", wanted, matchers)
    init = _amounts(ask, "kube_pod_init_container_resource", wanted, matchers)
    inits = _init_containers(ask, wanted, matchers, are_running=are_running)
    knows_inits = bool(inits.names or init)  # false also if the cluster has no init containers
    whole = _pod_amounts(ask, wanted, matchers)
    overhead = {
        (key_of_series(labels), resource): _amount(value, resource) or 0
        for resource, metric in _OVERHEAD.items()
        for labels, value in ask(series_selector(metric, matchers), POD)
    }
    classes = {
        key_of_series(labels): labels.get("qos_class", "")
        for labels, value in ask(series_selector("kube_pod_status_qos_class", matchers), f"{POD},qos_class")
        if value == 1
    }
    shared: dict[PodContainers, PodContainers] = {}
    found = {}
    for key in {*names, *main, *init, *inits.names, *whole, *classes}:
        if key not in wanted:
            continue
        sidecars = inits.sidecars.get(key, set())
        containers = _resources(names.get(key, set()), main.get(key, {}), ContainerRole.CONTAINER)
        every = _resources(inits.names.get(key, set()), init.get(key, {}), ContainerRole.INIT)
        containers += [each._replace(role=ContainerRole.SIDECAR) for each in every if each.name in sidecars]
        others = [each for each in every if each.name not in sidecars]
        reserved = overhead.get((key, CPU), 0), overhead.get((key, MEMORY), 0)
        sums, in_all = _sums(containers, others), whole.get(key, _NO_AMOUNTS)
        pod = _pod_level(in_all, sums, reserved)
        cpu, memory = (
            known or min(amount + above, MAX_AMOUNT)
            for known, amount, above in zip(in_all, sums, reserved, strict=False)
        )
        is_complete, qos_class = key in names and knows_inits, classes.get(key, "")
        parts = tuple(containers), tuple(others)
        read = PodContainers(*parts, is_complete, pod, (cpu, memory), reserved, qos_class)
        found[key] = shared.setdefault(read, read)
    return found


def read_restarts(
    ask: Ask, wanted: Container[PodKey], matchers: str, started: Mapping[PodKey, float]
) -> Mapping[PodKey, tuple[ContainerRestart, ...]] | None:
    """Return the last restart of each restarted container; None if the times of restarts are not exported.

    kube-state-metrics has no times for sidecars. A kill of a sidecar gets the start of its pod as time: with a later
    time in each round, every in-place resize would cause another, higher recommendation.

    Args:
        ask: queries one metric.
        wanted: the pods.
        matchers: label matchers for all series.
        started: start of each pod, Unix seconds.

    Raises:
        Exception: ``ask`` failed.
    """
    last = "kube_pod_container_status_last_terminated"
    ends = list(ask(series_selector(f"{last}_timestamp", matchers), CONTAINER))
    if not ends:
        return None

    def of_killed(metric: str) -> set[tuple[PodKey, str]]:
        series = ask(series_selector(metric, 'reason="OOMKilled"', matchers), CONTAINER)
        return {(key_of_series(labels), labels.get("container", "")) for labels, value in series if value == 1}

    killed = of_killed(f"{last}_reason")
    restarts: dict[PodKey, list[ContainerRestart]] = defaultdict(list)
    for labels, ended_at in ends:
        key, name = key_of_series(labels), labels.get("container", "")
        if key in wanted and ended_at > 0:
            restarts[key].append(ContainerRestart(name, ended_at, (key, name) in killed))
    for key, name in of_killed("kube_pod_init_container_status_last_terminated_reason"):
        if key in wanted and key in started:
            restarts[key].append(ContainerRestart(name, started[key], was_out_of_memory=True))
    return {key: tuple(rows) for key, rows in restarts.items()}


def _names(series: Iterable[tuple[Labels, float]], wanted: Container[PodKey]) -> dict[PodKey, set[str]]:
    names: dict[PodKey, set[str]] = defaultdict(set)
    for labels, _ in series:
        if (key := key_of_series(labels)) in wanted:
            names[key].add(labels.get("container", ""))
    return dict(names)


def _init_containers(ask: Ask, wanted: Container[PodKey], matchers: str, *, are_running: bool) -> _InitContainers:
    infos = list(ask(series_selector("kube_pod_init_container_info", matchers), f"{CONTAINER},restart_policy"))
    always = _names((row for row in infos if row[0].get("restart_policy") == "Always"), wanted)
    if are_running and infos:
        running = f"{series_selector('kube_pod_init_container_status_running', matchers)} == 1"
        for key, names in _names(ask(running, CONTAINER), wanted).items():
            always.setdefault(key, set()).update(names)
    return _InitContainers(_names(infos, wanted), always)


def _amounts(ask: Ask, prefix: str, wanted: Container[PodKey], matchers: str) -> _Amounts:
    """Return the requests and limits of containers; those without any are left out."""
    amounts: _Amounts = {}
    for column, (kind, resource) in enumerate(_COLUMNS):
        for labels, value in ask(series_selector(f"{prefix}_{kind}", f'resource="{resource}"', matchers), CONTAINER):
            key, amount = key_of_series(labels), _amount(value, resource)
            if key in wanted and amount is not None:
                row = amounts.setdefault(key, {}).setdefault(labels.get("container", ""), list(_NO_AMOUNTS))
                row[column] = amount
    return amounts


def _pod_amounts(ask: Ask, wanted: Container[PodKey], matchers: str) -> dict[PodKey, _Row]:
    """Return the total requests and limits of pods, from kube-scheduler, one amount for each of _COLUMNS."""
    whole: dict[PodKey, _Row] = {}
    for column, (kind, resource) in enumerate(_COLUMNS):
        named = series_selector(f"kube_pod_resource_{kind.removesuffix('s')}", f'resource="{resource}"', matchers)
        for labels, value in ask(named, POD):
            key = key_of_series(labels)
            if key in wanted and (amount := _amount(value, resource)):
                whole.setdefault(key, list(_NO_AMOUNTS))[column] = amount
    return whole


def _resources(names: set[str], amounts: Mapping[str, _Row], role: ContainerRole) -> list[ContainerResources]:
    return [
        ContainerResources(name, *amounts.get(name, _NO_AMOUNTS), role)  # type: ignore[call-arg]  # four amounts
        for name in sorted({*names, *amounts})
    ]


def _sums(containers: Sequence[ContainerResources], init_containers: Sequence[ContainerResources]) -> tuple[int, int]:
    """Return the CPU and memory that the containers of a pod request together.

    The order of the init containers is not known, so each counts with all sidecars.
    """

    def total(column: int) -> int:
        alone = sum(each.amounts[column] or 0 for each in containers if each.role is not ContainerRole.SIDECAR)
        sidecars = sum(each.amounts[column] or 0 for each in containers if each.role is ContainerRole.SIDECAR)
        return sidecars + max([alone, *(each.amounts[column] or 0 for each in init_containers)])

    return total(0), total(1)


def _pod_level(in_all: Sequence[int | None], sums: Sequence[int], overhead: Sequence[int]) -> ContainerResources | None:
    """Return a pod's own requests and limits, if it requests more than its containers and overhead; else None.

    kube-scheduler adds the overhead to requests and to limits.
    """
    requests, limits = (
        [None if amount is None else amount - above for amount, above in zip(row, overhead, strict=True)]
        for row in (in_all[:2], in_all[2:])
    )
    own = [amount if amount is not None and amount > sums[column] else None for column, amount in enumerate(requests)]
    return ContainerResources("", *own, *limits) if any(own) else None  # type: ignore[arg-type]  # four amounts


def _amount(value: float, resource: str) -> int | None:
    """Return an amount in millicores or bytes; None if it is negative, not a number or impossible."""
    scaled = value * _SCALES[resource]
    return round(scaled) if 0 <= scaled <= MAX_AMOUNT else None


def _is_guaranteed(container: ContainerResources) -> bool:
    """Return whether the limits equal the requests, as in all containers of the QoS class Guaranteed."""
    requests = (container.cpu_request_milli, container.memory_request_bytes)
    return None not in requests and requests == (container.cpu_limit_milli, container.memory_limit_bytes)
