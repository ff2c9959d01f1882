"""Bad input of learned use, end to end: from Prometheus and manifests to the API, the client and scores."""

import json
import math
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bench import Api
from support.extending import CONFIGURATION, SettableMetrics, StaticView, extender_args, profiles
from support.servers import run_prometheus, served_app

from client import ServiceClient
from runtime.http.gather import Deadline
from runtime.kubernetes.workloads import Workload
from trimaran.cluster.workload_use import WorkloadUse
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.wire import ExtenderArgs
from watcher.providers.prometheus import PrometheusProvider
from watcher.settings import ProviderSettings, Settings
from watcher.usage.rounds import PodUseRounds
from watcher.usage.sources.manifests import ManifestReader
from watcher.usage.sources.pods import RunningPods
from watcher.usage.sources.sources import FirstWorking, PodUseSources

MEBI = 2**20
LARGEST = 20_000
SCRAPES = range(420, -1, -60)
LEGAL = string.ascii_lowercase + string.digits
NAMESPACE = f"{LEGAL}-{LEGAL[:25]}x"
OWNER = f"0{'.'.join(LEGAL)}-{LEGAL}.{'y' * 100}z"
CONTAINER = f"{LEGAL}-{LEGAL[:26]}"
ODD = Workload(NAMESPACE, "StatefulSet", OWNER)
Value = Callable[[int], float]


def manifest(name: str, owner: tuple[str, str] | None, cpu: str = "500m", **more: str) -> dict[str, Any]:
    """Return a running pod of an owner, None for a pod without one."""
    references = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    metadata = {"namespace": more.get("namespace", "shop"), "name": name, "ownerReferences": references}
    requests = {"cpu": cpu, "memory": more.get("memory", "64Mi")}
    container = {"name": more.get("container", "main"), "resources": {"requests": requests}}
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"nodeName": "node-1", "containers": [container]}, "status": status}


def steady(cores: float) -> Value:
    """Return a counter that rises evenly and is large at the beginning."""
    return lambda before: 1e6 - cores * before


def flat(value: float) -> Value:
    """Return a gauge that does not change."""
    return lambda _before: value


def bad_pods() -> list[tuple[dict[str, Any], Value, Value]]:
    """Return pods, the counter of their CPU and the gauge of their memory."""
    good, size = steady(0.25), flat(32.0 * MEBI)
    reset: Value = lambda before: (150 - before) / 4 if before <= 150 else 5000 - before / 4  # noqa: E731
    return [
        (manifest("bare", None), good, size),
        (manifest("huge-0", ("StatefulSet", "huge"), str(10**18), memory=str(10**18)), good, size),
        (manifest("words-0", ("StatefulSet", "words"), "many", memory="-1Gi"), good, size),
        (manifest("negative-0", ("StatefulSet", "negative")), steady(-0.5), flat(-1.0)),
        (manifest("nothing-0", ("StatefulSet", "nothing")), flat(math.nan), flat(math.nan)),
        (manifest("endless-0", ("StatefulSet", "endless")), steady(1e9), flat(math.inf)),
        (manifest("reset-0", ("StatefulSet", "reset")), reset, size),
        (
            manifest(f"{'.'.join(LEGAL)}-0", ("StatefulSet", OWNER), namespace=NAMESPACE, container=CONTAINER),
            good,
            size,
        ),
        *((manifest(f"many-{number}", ("DaemonSet", "many")), good, size) for number in range(LARGEST)),
    ]


def samples(pods: list[tuple[dict[str, Any], Value, Value]], end: int) -> Iterator[str]:
    """Yield the series of cAdvisor as OpenMetrics text."""
    for place, metric, kind in (
        (1, "container_cpu_usage_seconds_total", "counter"), (2, "container_memory_working_set_bytes", "gauge"),
    ):  # fmt: skip
        yield f"# TYPE {metric.removesuffix('_total')} {kind}\n"
        for each in pods:
            metadata, (container,) = each[0]["metadata"], each[0]["spec"]["containers"]
            labels = (
                f'namespace="{metadata["namespace"]}",pod="{metadata["name"]}",container="{container["name"]}",'
                f'image="i",id="/{metadata["name"]}",job="kubelet"'
            )
            is_one_of_many = metadata["name"].startswith("many-")
            for before in SCRAPES[::3] if is_one_of_many else SCRAPES:
                yield f"{metric}{{{labels}}} {_number(each[place](before))} {end - before}\n"


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else {math.inf: "+Inf"}.get(value, "NaN")


class GivenPods:
    """Source of pods that were read from manifests."""

    problems = ()

    def __init__(self, manifests: list[dict[str, Any]]) -> None:
        reader = ManifestReader()
        self._pods = {identity.key: pod for pod, identity in filter(None, map(reader.read, manifests))}

    def running(self, _deadline: Deadline) -> RunningPods:
        return self._pods

    def capacity(self, _deadline: Deadline) -> None:
        return None

    def close(self) -> None:
        pass


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.usefixtures("closed_sessions")
def test_bad_use_costs_only_itself(tmp_path: Path) -> None:
    """Every bad pod is unknown or as it should be; all others, the API, the client and scores stay right and finite."""
    end, pods, api = int(time.time()) - 5, bad_pods(), Api()
    with run_prometheus(tmp_path, samples(pods, end)) as address:
        settings = Settings(provider=ProviderSettings(name="Prometheus", address=address))
        source = FirstWorking([GivenPods([manifest for manifest, *_ in pods])])
        sources = PodUseSources("Prometheus", PrometheusProvider(settings), source)
        rounds = PodUseRounds(settings, [api.watcher.workloads], lambda _settings: sources, clock=lambda: end)
        assert rounds.run_once(), rounds.state.failure
    with served_app(api.app) as url, ServiceClient(url, timeout_seconds=30) as client:
        table, document, odd = client.workloads(), client.workload_document(), client.workload_detail(ODD)
        use = WorkloadUse(client, 60, clock=lambda: float(end))
        use.read_once()
    # The table has the good ones with their use, and nothing that is not finite.
    for name in ("use", "deviations", "level", "level_deviation", "pods", "pod_minutes"):
        values = getattr(table, name)
        assert np.isfinite(values).all(), name
        assert (values >= 0).all(), name
    assert (table.use <= [[1], [MEBI * 64]]).all()
    # The API serves valid JSON: the median of each good pod is its use, and unknown for the bad ones.
    json.dumps(document, allow_nan=False)
    items = {item["name"]: item for item in document["workloads"]}
    medians = {name: item["containers"][0]["cpu_cores_percentiles"]["50"] for name, item in items.items()}
    for name in ("bare", "huge", "words", "reset", "many", OWNER):
        assert medians[name] == pytest.approx(0.25, abs=0.05), name
    assert not {"negative", "nothing", "endless"} & {name for name, median in medians.items() if median is not None}
    assert items["many"]["pods"] == LARGEST
    assert items["bare"]["kind"] == "Pod"
    for name in ("huge", "words"):
        assert items[name]["containers"][0]["requests"] == {"cpu_cores": 0.0, "memory_bytes": 0.0}
    assert odd["containers"][0]["name"] == CONTAINER
    # Pods of all these workloads get scores, each node one, for the same load.
    nodes = {"node-1": 40.0, "node-2": 20.0}
    plugins = {"score": {"enabled": [{"name": "CongestionCost", "weight": 1}]}}
    configuration = {**CONFIGURATION, "profiles": [{"schedulerName": "load-aware", "plugins": plugins}]}
    prioritizer = Prioritizer(
        profiles(configuration), StaticView(*nodes), SettableMetrics(nodes), PrioritizerOptions(20, assume=False),
        levels=use.levels,
    )  # fmt: skip
    try:
        for manifest_, *_ in pods[:9]:
            request = extender_args(*nodes)
            references = manifest_["metadata"]["ownerReferences"]
            request["Pod"]["metadata"] |= {"ownerReferences": references, "namespace": "shop"}
            answer = prioritizer.answer(ExtenderArgs.decode(json.dumps(request).encode()))
            assert answer.details is not None, answer.outcome
            assert answer.details.levels is use.levels()
            assert answer.scores["node-2"] > answer.scores["node-1"]
    finally:
        prioritizer.close()
