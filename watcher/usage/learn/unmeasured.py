"""Containers of running pods that were never measured, each with the reason."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from runtime.kubernetes.workloads import Workload
from watcher.usage.sources.pods import RECENT_SECONDS, RunningPod, RunningPods
from watcher.workload_table import ContainerKey

_MAX_ITEMS = 1000


class UnmeasuredContainer(NamedTuple):
    """Container that was never measured.

    Attributes:
        workload: workload of the container.
        container: name of the container.
        pods: number of running pods with the container.
        reason: why the container is not measured, as far as this is known.
    """

    workload: Workload
    container: str
    pods: int
    reason: str

    def as_document(self) -> dict[str, Any]:
        """Return the container as an item of ``not_measured`` in the response of ``GET /workloads``."""
        return {**self.workload._asdict(), "container": self.container, "pods": self.pods, "reason": self.reason}


def unmeasured(
    pods: RunningPods, is_known: Callable[[ContainerKey], bool], now: float
) -> tuple[UnmeasuredContainer, ...]:
    """Return the containers of running pods that were never measured, sorted.

    Args:
        pods: the running pods.
        is_known: returns whether a container was measured, in this round or an earlier one.
        now: end of the round, Unix seconds.
    """
    known: dict[int, tuple[ContainerKey, ...]] = {}
    found: dict[ContainerKey, list[RunningPod]] = {}
    for pod in pods.values():
        keys = known.get(id(pod.template))
        if keys is None:
            every = (ContainerKey(pod.template.workload, each.name) for each in pod.template.containers)
            keys = known[id(pod.template)] = tuple(key for key in every if not is_known(key))
        for key in keys:
            found.setdefault(key, []).append(pod)
    return tuple(
        UnmeasuredContainer(key.workload, key.container, len(of_key), _reason(key.container, of_key, now))
        for key, of_key in sorted(found.items())
    )


def unmeasured_items(found: Iterable[UnmeasuredContainer], wanted: Callable[[Workload], bool]) -> list[dict[str, Any]]:
    """Return the first 1,000 containers of wanted workloads, as values for JSON."""
    return [each.as_document() for each in islice((one for one in found if wanted(one.workload)), _MAX_ITEMS)]


def _reason(container: str, pods: list[RunningPod], now: float) -> str:
    """Return why none of the pods' containers is measured."""
    if restarts := list(_restarts(container, pods)):
        ended_at, was_out_of_memory = max(restarts)
        why = "was killed for lack of memory of its node" if was_out_of_memory else "ended"
        return f"it {why} {_minutes(now - ended_at)} ago, before it was measured"
    starts = [pod.started_at for pod in pods]
    if any(start is None or now - start < RECENT_SECONDS for start in starts):
        youngest = max((start for start in starts if start is not None), default=None)
        return "its start is not known" if youngest is None else f"its pod started {_minutes(now - youngest)} ago"
    return "the source of the use has no measurement of it: it does not run, or is not scraped"


def _restarts(container: str, pods: list[RunningPod]) -> Iterator[tuple[float, bool]]:
    for pod in pods:
        for restart in pod.restarts or ():
            if restart.container == container:
                yield restart.ended_at, restart.was_out_of_memory


def _minutes(seconds: float) -> str:
    return f"{max(seconds, 0) / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
