"""``trimaran workloads``: show the requests of workloads next to their use, and recommended requests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from client.connecting import WatcherCredentials
from client.errors import ClientError
from client.service import ServiceClient
from runtime.terminal import echo, echo_document, echo_table, echo_yaml, output_option
from trimaran.cli.options import credential_options, embedded_options, fail, kubernetes_api, option, path_option
from trimaran.cli.request_patches import RequestPatch, request_patches, resize_patches
from trimaran.workload_advice import QUANTITY, RESOURCES, AdvisedContainer, AdvisedWorkload, read_workload

_GIB = 2**30
_NONE = "No request of a Deployment, StatefulSet, DaemonSet or CronJob is to be changed."
_SORTED = {"cpu": 0, "memory": 1}
_SHOWN_UNMEASURED = 20
_TOTALS = ("requested", "used", "could_be_freed")
KubeOptions = tuple[Path | None, str]
"""Kubeconfig file and its context."""


@click.command()
@click.option(
    "--watcher",
    "address",
    envvar="TRIMARAN_WATCHER_ADDRESS",
    show_envvar=True,
    help="Address of the watcher. [default: none; pods are measured once]",
)
@credential_options("watcher")
@embedded_options
@click.option("--namespace", help="Show the workloads of this namespace only. [default: all]")
@option(
    "--sort",
    type=click.Choice(["cpu", "memory", "name"]),
    default="cpu",
    help="Order of the workloads: by unused requested CPU or memory, the most first, or by name.",
)
@click.option("--patch", is_flag=True, help="Print patches with the recommended requests as YAML; apply nothing.")
@click.option(
    "--in-place", is_flag=True, help="With --patch: print patches that resize running pods, not patches of templates."
)
@path_option("--kube-config", help="Kubeconfig file, for --patch and without --watcher.")
@click.option("--kube-context", default="", help="Context of the kubeconfig. [default: the current context]")
@output_option("text", "wide", "json", "yaml")
def workloads(
    address: str | None,
    access: WatcherCredentials,
    namespace: str | None,
    sort: str,
    kube_config: Path | None,
    kube_context: str,
    last: float,
    provider_flags: dict[str, str | None],
    output: str,
    *,
    patch: bool,
    in_place: bool,
) -> None:
    """Show each container's requests, the recommended requests, and the requested amounts that are not used.

    The watcher recommends the 90th percentile of CPU use and the highest memory of the last days, plus 15 percent. It
    lowers no request before it has measured the container for seven days, nor if another reason is shown. Nothing in
    the cluster is changed.

    \b
    Examples: trimaran workloads --watcher http://127.0.0.1:2020
              trimaran workloads --namespace shop --sort memory -o wide
              trimaran workloads --provider Prometheus --address http://prometheus:9090 --last 7d
              trimaran workloads --namespace shop --patch > patches.yaml
              trimaran workloads --namespace shop --patch --in-place --kube-config ~/.kube/config

    Exit status: 0 if workloads are shown, 1 if none are known, 2 if an option cannot be used.
    """
    _check_options(patch=patch, in_place=in_place, output=output)
    if address is not None and (last or any(provider_flags.values())):
        raise click.UsageError("--provider, --address and --last are for an embedded watcher: leave out --watcher")
    flags = {**provider_flags, "provider.kube_config": None if kube_config is None else str(kube_config)}
    if address is None:
        from trimaran.cli.embedded_workloads import embedded_document  # imports the whole watcher

        document = embedded_document(flags, last, namespace)
    else:
        document = _document(address, access, namespace)
    try:
        measured = [read_workload(item, float(document["timestamp"])) for item in document["workloads"]]
        unchecked = _not_checked(document)
        unmeasured = list(_not_measured(document))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"its answer has unexpected content ({type(error).__name__}: {error})"
        fail(f"the watcher does not recommend requests; is it an older version? {reason}", 1)
    if not measured and not unmeasured:
        place = "" if namespace is None else f" in the namespace {namespace!r}"
        fail(f"the watcher knows no workload{place}", 1)
    measured.sort(key=lambda each: (-each.wasted(RESOURCES[_SORTED[sort]]) if sort in _SORTED else 0, each.workload))
    if in_place:
        _print_resizes(measured, unchecked, (kube_config, kube_context))
        return
    if patch:
        _print_patches(measured, unchecked, (kube_config, kube_context) if kube_config else None)
        return
    totals = _totals(each for workload in measured for each in workload.containers)
    if output in {"json", "yaml"}:
        total = {name: dict(zip(RESOURCES, totals[name], strict=True)) for name in _TOTALS}
        items = [each.item for each in measured]
        lists = {"not_checked": document["not_checked"], "not_measured": document.get("not_measured", [])}
        echo_document({"total": total, **lists, "workloads": items}, output)
        return
    _show(measured, output)
    echo()
    count = "1 workload" if len(measured) == 1 else f"{len(measured)} workloads"
    amounts = [f"{cpu:.1f} CPUs and {memory / _GIB:.1f} GiB" for cpu, memory in (totals[name] for name in _TOTALS)]
    echo("{}: {} requested, {} used, {} could be freed".format(count, *amounts))
    for line in (*filter(None, [unchecked]), *unmeasured[:_SHOWN_UNMEASURED]):
        echo(line)
    if (more := len(unmeasured) - _SHOWN_UNMEASURED) > 0:
        echo(f"not measured: {more} more containers (-o json has all)")


def _check_options(*, patch: bool, in_place: bool, output: str) -> None:
    if patch and output == "json":
        fail("--patch prints YAML, not -o json", 2)
    if in_place and not patch:
        fail("--in-place needs --patch", 2)


def _not_checked(document: Mapping[str, Any]) -> str:
    """Return the line that names the reasons against a lower request that the watcher could not check; "" if none."""
    unchecked = "; ".join(map(str, document["not_checked"]))
    return f"not checked: {unchecked}" if unchecked else ""


def _not_measured(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each container of running pods that was never measured; older watchers have no list of them."""
    for each in document.get("not_measured", ()):
        pods = "1 pod" if each["pods"] == 1 else f"{each['pods']} pods"
        name = f"{each['namespace']} {each['kind']}/{each['name']} {each['container']}"
        yield f"not measured: {name} ({pods}): {each['reason']}"


def _document(address: str, access: WatcherCredentials, namespace: str | None) -> dict[str, Any]:
    """Return the watcher's workloads, and print a notice if it omits workloads; exit with the reason if it has none."""
    try:
        with ServiceClient(address, **access) as client:
            document = client.workload_document(namespace)
    except ClientError as error:
        fail(error, 1)
    except ValueError as error:
        fail(error, 2)
    if omitted := document.get("omitted"):
        echo(f"trimaran: {omitted}", err=True)
    return document


def _totals(containers: Iterable[AdvisedContainer]) -> dict[str, list[float]]:
    """Return requests, use, and the requests that could be freed, as sums over all running pods: CPU and memory."""
    totals = {name: [0.0] * len(RESOURCES) for name in _TOTALS}
    for each in containers:
        for place, resource in enumerate(RESOURCES):
            requested, recommended = each.requests[resource], each.recommended[resource]
            freed = requested - (recommended or 0.0) if each.verdict[resource] == "lower" else 0.0
            for name, amount in zip(_TOTALS, (requested, each.use[resource], freed), strict=True):
                totals[name][place] += amount * each.pods
    return totals


def _print_patches(measured: Sequence[AdvisedWorkload], unchecked: str, kube: KubeOptions | None) -> None:
    """Print a YAML document for each workload whose template can be patched, with the command that applies it.

    Args:
        measured: the workloads.
        unchecked: line with the reasons against lower requests that were not checked.
        kube: kubeconfig and context to read the templates with; None to read none.
    """
    echo("# Strategic-merge patches of requests, one document each. Nothing was applied.")
    if kube is None:
        echo("# The API server refuses containers that the template does not have, such as injected sidecars: delete")
        echo("# those from the patch, or find them with --kube-config.")
        _print(request_patches(measured), unchecked, _NONE)
        return
    from trimaran.cli.pods_to_patch import template_containers  # imports the Kubernetes client

    with kubernetes_api(*kube) as api:
        _print(request_patches(measured, partial(template_containers, api)), unchecked, _NONE)


def _print_resizes(measured: Sequence[AdvisedWorkload], unchecked: str, kube: KubeOptions) -> None:
    """Print a YAML document for each running pod with a request to change, with the command that applies it."""
    from trimaran.cli.pods_to_patch import check_resize, pods_by_workload  # imports the Kubernetes client

    with kubernetes_api(*kube) as api:
        check_resize(api)
        pods = pods_by_workload(api, [each.workload for each in measured])
    echo("# Patches of the subresource resize of running pods, one document each. Nothing was applied.")
    echo("# The next rollout, or any new pod, undoes a resize: patch the template, too (--patch without --in-place).")
    _print(resize_patches(measured, pods), unchecked, "No request of a running pod is to be changed.")


def _print(patches: Iterable[RequestPatch], unchecked: str, none: str) -> None:
    if unchecked:
        echo(f"# {unchecked}")
    is_empty = True
    for notes, command, document in patches:
        is_empty &= not document
        if document:
            echo("---")
            echo(f"# {command}")
        for note in notes:
            echo(f"# {note}")
        if document:
            echo_yaml(document)
    if is_empty:
        echo(f"# {none}")


def _show(measured: Sequence[AdvisedWorkload], output: str) -> None:
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


def _change(container: AdvisedContainer, resource: str) -> str:
    """Return the present request, followed by the recommended request if the watcher advises a change."""
    request, recommended = container.requests[resource], container.recommended[resource]
    present = QUANTITY[resource](request) if request else "-"
    is_kept = recommended is None or container.verdict[resource] == "keep"
    return present if is_kept or recommended is None else f"{present} → {QUANTITY[resource](recommended)}"


def _reasons(container: AdvisedContainer) -> Iterator[str]:
    """Yield the reasons for CPU and memory; a reason that both share is yielded once, without a resource."""
    cpu, memory = (container.reason[resource] for resource in RESOURCES)
    if cpu == memory:
        yield from (cpu,) if cpu else ()
        return
    yield from (f"{name}: {reason}" for name, reason in (("CPU", cpu), ("memory", memory)) if reason)


def _wasted(amount: float | None, unit: float) -> str:
    return "-" if amount is None else f"{amount / unit:.2f}"
