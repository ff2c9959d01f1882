"""Use of containers from the Kubernetes metrics API.

metrics-server ignores ``limit`` and returns all pods in one response, 40 MB for 100,000 pods. The response is decoded
into the needed fields only, which takes a fifth of the memory of all its JSON objects.
"""

import math
import re
from collections import Counter
from typing import Any

import msgspec

from runtime.http import budget
from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes import quantity
from runtime.kubernetes.api import KubernetesApi
from watcher.windows.container_use import CPU_CORES, MEMORY_BYTES, ContainerUse, ContainerUseBuilder

_PAGE_SIZE = "10000"
_NANO = 10**9
_PARTS = re.compile(r"([0-9]+(?:\.[0-9]*)?)(h|ms|m|s|us|µs|ns)")  # of a duration in Go's syntax, such as 1m0.5s
_PART_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class _Metadata(msgspec.Struct, gc=False):
    name: str
    namespace: str


class _Usage(msgspec.Struct, gc=False):
    cpu: Any = None
    memory: Any = None


class _ContainerMetrics(msgspec.Struct, gc=False):
    name: str
    usage: _Usage


class _PodMetrics(msgspec.Struct, gc=False):
    metadata: _Metadata
    window: str = ""
    containers: list[_ContainerMetrics] | None = None


class _ListMetadata(msgspec.Struct, rename={"following": "continue"}):
    following: str = ""


class _PodMetricsList(msgspec.Struct):
    items: list[msgspec.Raw] | None  # decoded one by one, so that other threads do not wait for all of them
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


_DECODER = msgspec.json.Decoder(_PodMetricsList)
_POD_DECODER = msgspec.json.Decoder(_PodMetrics)


def read(api: KubernetesApi, path: str, timestamp: int, deadline: Deadline) -> ContainerUse:
    """Return the newest measurement of every container; a pod that was measured only once is left out.

    Args:
        api: client of the API server.
        path: path of the list of PodMetrics.
        timestamp: present time, Unix seconds.
        deadline: deadline for all pages.

    Raises:
        UnexpectedResponse: the response is not a list of PodMetrics.
        Exception: as :meth:`KubernetesApi.read`.
    """
    rows, windows = ContainerUseBuilder(), Counter[str]()
    position = ""
    while True:
        charged = (budget.current() or budget.Budget(math.inf)).child()
        try:
            with budget.use_budget(charged):
                body = api.read(path, deadline, **{"limit": _PAGE_SIZE, "continue": position})
            following = _add(body, rows, windows)
            del body
        finally:
            charged.release(keep_bytes=0)
        if not following:
            break
        if following == position or not deadline.remaining_seconds():
            raise TimeoutError(f"the list {path} has too many pages to be read in time")
        position = following
    usual = windows.most_common(1)
    return rows.build(timestamp, _seconds(usual[0][0]) if usual else 0.0)


def _add(body: bytes, rows: ContainerUseBuilder, windows: Counter[str]) -> str:
    """Add the containers of a page; return the position of the next page, "" after the last."""
    try:
        page = _DECODER.decode(body)
        for item in page.items or ():
            pod = _POD_DECODER.decode(item)
            namespace, name = pod.metadata.namespace, pod.metadata.name
            windows[pod.window] += 1
            for container in pod.containers or ():
                usage = container.usage
                rows.add(CPU_CORES, namespace, name, container.name, _amount(usage.cpu))
                rows.add(MEMORY_BYTES, namespace, name, container.name, _amount(usage.memory))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnexpectedResponse(f"the response is not a list of PodMetrics: {error}") from None
    return page.metadata.following


def _amount(written: Any) -> float:
    """Return a quantity in cores or bytes; NaN if it is unreadable."""
    if type(written) is str and written[-1:] == "n" and written[:-1].isdecimal():  # nearly every amount of CPU
        return int(written[:-1]) / _NANO
    try:
        return quantity.nano_value(written) / _NANO
    except ValueError:
        return math.nan


def _seconds(go_duration: str) -> float:
    return sum(float(number) * _PART_SECONDS[unit] for number, unit in _PARTS.findall(go_duration))
