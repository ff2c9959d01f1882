"""``trimaran workloads``: show the requests of workloads next to their use, and recommended requests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import click

from client.connecting import WatcherCredentials
from client.errors import ClientError
from client.service import ServiceClient
from runtime.kubernetes.workloads import Workload
from runtime.terminal import echo, echo_document, echo_table, output_option
from trimaran.cli.options import credential_options, fail, option

RESOURCES = ("cpu_cores", "memory_bytes")
NOT_CHECKED = ("throttling", "OOM kills", "autoscalers (HPA, VPA)", "the QoS class Guaranteed", "limits")
"""Reasons against a lower request that the watcher does not know."""

_GIB, _MIB = 2**30, 2**20
_ROUNDING_ERROR = 1e-6
_RECENT_SECONDS = 900.0  # as in the watcher: what was not measured for longer has ended
_SORTED = {"cpu": 0, "memory": 1}
_TOTALS = ("requested", "used", "could_be_freed")


class MeasuredContainer(NamedTuple):
    """Container of a workload as the watcher describes it; mappings are by resource.

    Attributes:
        name: name of the container.
        pods: number of pods that run now.
        requests: present requests; 0 without one.
        use: expected use of one pod.
        recommended: recommended requests; None if unknown.
        verdict: ``lower``, ``raise`` or ``keep``; None if unknown.
        reason: reason why a request is not lowered, or not recommended; None without one.
        wasted: unused part of the requests of all pods that run now; None if unknown.
        more: further values for the wide table.
    """

    name: str
    pods: float
    requests: Mapping[str, float]
    use: Mapping[str, float]
    recommended: Mapping[str, float | None]
    verdict: Mapping[str, str | None]
    reason: Mapping[str, str | None]
    wasted: Mapping[str, float | None]
    more: tuple[str, ...]


class MeasuredWorkload(NamedTuple):
    """Workload with the containers that its pods have now, and its JSON."""

    workload: Workload
    containers: Sequence[MeasuredContainer]
    item: Mapping[str, Any]

    def wasted(self, resource: str) -> float:
        """Return the unused part of the requests of all its pods."""
        return sum(each.wasted[resource] or 0.0 for each in self.containers)


@click.command()
@click.option(
    "--watcher",
    "address",
    envvar="TRIMARAN_WATCHER_ADDRESS",
    show_envvar=True,
    required=True,
    help="Address of the watcher.",
)
@credential_options("watcher")
@click.option("--namespace", help="Show the workloads of this namespace only. [default: all]")
@option(
    "--sort",
    type=click.Choice(["cpu", "memory", "name"]),
    default="cpu",
    help="Order of the workloads: by unused requested CPU or memory, the most first, or by name.",
)
@output_option("text", "wide", "json", "yaml")
def workloads(address: str, access: WatcherCredentials, namespace: str | None, sort: str, output: str) -> None:
    """Show each container's requests, the recommended requests, and the requested amounts that are not used.

    The watcher recommends the 90th percentile of CPU use and the highest memory of the last days, plus 15 percent. It
    lowers no request before it has measured the container for seven days. Nothing in the cluster is changed.

    \b
    Examples: trimaran workloads --watcher http://127.0.0.1:2020
              trimaran workloads --namespace shop --sort memory -o wide

    Exit status: 0 if workloads are shown, 1 if none are known, 2 if an option cannot be used.
    """
    document = _document(address, access, namespace)
    try:
        measured = [_measured(item, float(document["timestamp"])) for item in document["workloads"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"its answer has unexpected content ({type(error).__name__}: {error})"
        fail(f"the watcher does not recommend requests; is it an older version? {reason}", 1)
    if not measured:
        fail(f"the watcher knows no workload in the namespace {namespace!r}", 1)
    measured.sort(key=lambda each: (-each.wasted(RESOURCES[_SORTED[sort]]) if sort in _SORTED else 0, each.workload))
    totals = _totals(each for workload in measured for each in workload.containers)
    if output in {"json", "yaml"}:
        total = {name: dict(zip(RESOURCES, totals[name], strict=True)) for name in _TOTALS}
        items = [each.item for each in measured]
        echo_document({"total": total, "not_checked": NOT_CHECKED, "workloads": items}, output)
        return
    _show(measured, output)
    echo()
    count = "1 workload" if len(measured) == 1 else f"{len(measured)} workloads"
    amounts = [f"{cpu:.1f} CPUs and {memory / _GIB:.1f} GiB" for cpu, memory in (totals[name] for name in _TOTALS)]
    echo("{}: {} requested, {} used, {} could be freed".format(count, *amounts))
    echo(not_checked())


def cpu_quantity(cores: float) -> str:
    """Return an amount of CPU as a Kubernetes quantity, rounded up to millicores."""
    milli = ceil(cores * 1000 - _ROUNDING_ERROR)
    return f"{milli // 1000}" if milli % 1000 == 0 else f"{milli}m"


def memory_quantity(amount: float) -> str:
    """Return an amount of memory in bytes as a Kubernetes quantity, rounded up to Mi."""
    mebi = ceil(amount / _MIB - _ROUNDING_ERROR)
    return f"{mebi // 1024}Gi" if mebi and mebi % 1024 == 0 else f"{mebi}Mi"


QUANTITY = {"cpu_cores": cpu_quantity, "memory_bytes": memory_quantity}
"""Function that writes an amount of a resource."""


def not_checked() -> str:
    """Return the line that names the reasons against a lower request that are not known."""
    return f"not checked: {', '.join(NOT_CHECKED)}"


def _document(address: str, access: WatcherCredentials, namespace: str | None) -> dict[str, Any]:
    """Return the watcher's workloads; exit with the reason if there are none."""
    try:
        with ServiceClient(address, **access) as client:
            return client.workload_document(namespace)
    except ClientError as error:
        fail(error, 1)
    except ValueError as error:
        fail(error, 2)


def _measured(item: Mapping[str, Any], newest: float) -> MeasuredWorkload:
    """Read a workload. Containers that its newest pods do not have any more are left out.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the item is not a workload with recommendations.
    """
    last_seen = float(item["last_seen"])
    is_running = last_seen >= newest - _RECENT_SECONDS
    present = [each for each in item["containers"] if float(each["last_seen"]) >= last_seen - _RECENT_SECONDS]
    workload = Workload(*(str(item[name]) for name in Workload._fields))
    return MeasuredWorkload(workload, [_container(each, is_running=is_running) for each in present], item)


def _container(item: Mapping[str, Any], *, is_running: bool) -> MeasuredContainer:
    percentile, highest = item["cpu_cores_percentiles"].get("90"), item["highest_memory_bytes"]
    days = (float(item["last_seen"]) - float(item["first_seen"])) / 86400
    more = (
        cpu_quantity(float(item["use"]["cpu_cores"])),
        memory_quantity(float(item["use"]["memory_bytes"])),
        cpu_quantity(float(percentile or 0)),
        memory_quantity(float(highest or 0)),
        f"{days:.1f}d",
    )
    amounts = {name: {each: float(item[name][each]) for each in RESOURCES} for name in ("requests", "use")}
    unsure = {
        name: {each: None if item[name][each] is None else float(item[name][each]) for each in RESOURCES}
        for name in ("recommended", "wasted")
    }
    texts = {
        name: {each: None if item[name][each] is None else str(item[name][each]) for each in RESOURCES}
        for name in ("verdict", "reason")
    }
    pods = float(item["pods"]) if is_running else 0.0
    return MeasuredContainer(
        str(item["name"]), pods, amounts["requests"], amounts["use"], unsure["recommended"], texts["verdict"],
        texts["reason"], unsure["wasted"], more,
    )  # fmt: skip


def _totals(containers: Iterable[MeasuredContainer]) -> dict[str, list[float]]:
    """Return what all running pods request and use, and what lower requests would free: CPU and memory each."""
    totals = {name: [0.0] * len(RESOURCES) for name in _TOTALS}
    for each in containers:
        for place, resource in enumerate(RESOURCES):
            requested, recommended = each.requests[resource], each.recommended[resource]
            freed = requested - (recommended or 0.0) if each.verdict[resource] == "lower" else 0.0
            for name, amount in zip(_TOTALS, (requested, each.use[resource], freed), strict=True):
                totals[name][place] += amount * each.pods
    return totals


def _show(measured: Sequence[MeasuredWorkload], output: str) -> None:
    header = ["NAMESPACE", "WORKLOAD", "CONTAINER", "PODS", "CPU", "MEMORY", "WASTED CPU", "WASTED GIB"]
    if output == "wide":
        header += ["CPU USE", "MEMORY USE", "CPU P90", "HIGHEST MEMORY", "HISTORY"]
    rows = []
    for workload, containers, _ in measured:
        for each in containers:
            row = [workload.namespace, f"{workload.kind}/{workload.name}", each.name, f"{each.pods:.0f}"]
            row += [_change(each, resource) for resource in RESOURCES]
            row += [_wasted(each.wasted["cpu_cores"], 1), _wasted(each.wasted["memory_bytes"], _GIB)]
            rows.append([*row, *(each.more if output == "wide" else ()), "; ".join(_reasons(each)) or "-"])
    echo_table([*header, "REASON"], rows, lambda _column, cell: "yellow" if " → " in cell else None)


def _change(container: MeasuredContainer, resource: str) -> str:
    """Return the present request, and the recommended one if it differs by more than the watcher keeps."""
    request, recommended = container.requests[resource], container.recommended[resource]
    present = QUANTITY[resource](request) if request else "-"
    is_kept = recommended is None or container.verdict[resource] == "keep"
    return present if is_kept or recommended is None else f"{present} → {QUANTITY[resource](recommended)}"


def _reasons(container: MeasuredContainer) -> Iterator[str]:
    """Yield the reasons, each with the resource unless both have the same."""
    cpu, memory = (container.reason[resource] for resource in RESOURCES)
    if cpu == memory:
        yield from (cpu,) if cpu else ()
        return
    yield from (f"{name}: {reason}" for name, reason in (("CPU", cpu), ("memory", memory)) if reason)


def _wasted(amount: float | None, unit: float) -> str:
    return "-" if amount is None else f"{amount / unit:.2f}"
