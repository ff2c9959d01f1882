"""Past days of pods as a Prometheus knows them, for tests of the backfill."""

from collections.abc import Callable, Iterator

DAY, MEBI = 86400, 2**20


def past_days(end: int) -> Iterator[str]:
    """Yield three days of cAdvisor and kube-state-metrics: a pod of web that runs, one that was replaced, and a job."""
    lives = {"web-5d4f-a": (1.2 * DAY, 0.0), "web-7f9c-b": (2.5 * DAY, 1.2 * DAY), "nightly-1": (1.6 * DAY, 1.5 * DAY)}
    owners = {"web-5d4f-a": ("ReplicaSet", "web-5d4f"), "web-7f9c-b": ("ReplicaSet", "web-7f9c"),
              "nightly-1": ("Job", "nightly-29000000")}  # fmt: skip

    def lines(metric: str, kind: str, more: str, value: Callable[[str, int], float], step: int = 60) -> Iterator[str]:
        yield f"# TYPE {metric.removesuffix('_total')} {kind}\n"
        for pod, (first, last) in lives.items():
            labels = f'namespace="shop",pod="{pod}"{more.format(*owners[pod])}'
            for before in range(int(first) // step * step, int(last) - 1, -step):
                yield f"{metric}{{{labels}}} {value(pod, before)!r} {end - before}\n"

    rate = {"web-5d4f-a": 0.2, "web-7f9c-b": 0.6, "nightly-1": 1.5}
    cadvisor = ',container="main",image="i",id="/x"'
    yield from lines(
        "container_cpu_usage_seconds_total", "counter", cadvisor, lambda pod, before: 1e6 - rate[pod] * before
    )
    yield from lines(
        "container_memory_working_set_bytes", "gauge", cadvisor, lambda pod, before: 500 * rate[pod] * MEBI
    )
    by = ',created_by_kind="{0}",created_by_name="{1}",uid="u",node="n"'
    yield from lines("kube_pod_info", "gauge", by, lambda pod, before: 1.0)
    yield from lines("kube_pod_status_phase", "gauge", ',phase="Running"', lambda pod, before: 1.0)
    yield "# TYPE kube_replicaset_owner gauge\n"
    for name in ("web-5d4f", "web-7f9c"):
        for before in range(3 * DAY, -1, -120):
            yield (f'kube_replicaset_owner{{namespace="shop",replicaset="{name}",owner_kind="Deployment",'
                   f'owner_name="web",owner_is_controller="true"}} 1 {end - before}\n')  # fmt: skip
