"""Fields that no API server sends: each decoder raises a ValueError, and each reader goes on with other objects."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pytest
from support.odd_objects import KINDS
from support.odd_pods import Object, whole_pod
from support.servers import wait_until
from support.watched_api import PATHS, WatchedApi

from runtime.kubernetes.gangs import PodGroup, labelled_group
from runtime.kubernetes.k8s_fields import get, get_whole, unix_seconds
from runtime.kubernetes.objects import Node, Pod
from runtime.kubernetes.owners import controller_of
from runtime.kubernetes.reflector import ReflectorStore
from trimaran.cluster.object_reader import ObjectReader, pod_reader
from trimaran.cluster.planned_targets import PlannedTargets
from trimaran.cluster.target_note import TargetNote
from trimaran.rebalancer.cluster_watch import BUDGETS, SCALERS, WORKLOADS, ClusterWatch
from trimaran.rebalancer.facts import PodFacts
from trimaran.scheduler.plugins.network.objects import AppGroup, NetworkTopology
from trimaran.scheduler.plugins.preemption.toleration import PriorityClass
from trimaran.scheduler.plugins.storage_objects import NodeDrivers
from trimaran.scheduler.profiles.object_cache import ObjectCache
from trimaran.scheduler.service.event_queue import EventQueue, KindEventHandler, NodeFeed, PodFeed
from trimaran.scheduler.service.gang_statuses import POD_GROUP_STATUS
from trimaran.scheduler.service.kubelet_rejections import RejectionFeed
from trimaran.scheduler.service.quota_statuses import QUOTA_STATUS
from trimaran.scheduler.service.status_controller import ObjectStatusWriter
from trimaran.soft_taints.node_state import NodeStateCache
from watcher.usage.sources.api_pods import _PodStore
from watcher.usage.sources.manifests import ManifestReader

Read = Callable[[Mapping[str, Any]], object]
TIME: Final = "2026-01-01T00:00:00Z"


def nested(depth: int) -> list[Any]:
    """Return a list in a list and so on, which is deeper than Python recurses."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


VALUES: Final = (
    None, True, -1, 0, 1.5, 1e30, -1e30, float("inf"), float("nan"), 2**31, 2**63, -(2**63) - 1, 10**400, "", "x",
    "NaN", "inf", "1e400", "9" * 5000, "\ud800", "0001-01-01T00:00:00", "9999-12-31T23:59:59", [], [None], ["x"], [[]],
    [{}], {}, {"a": None}, {"": []}, nested(5000),
)  # fmt: skip


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field of an object, at any depth."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from paths(each, (*path, key))


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return an object with another value of a field."""
    if not path:
        return new
    copied = value.copy()
    copied[path[0]] = with_value(value[path[0]], path[1:], new)
    return copied


def broken(document: Object, values: Sequence[Any] = VALUES) -> Iterator[Object]:
    """Yield an object with each of some values in each of its fields."""
    for path in paths(document):
        if path != ("kind",):
            yield from (with_value(document, path, value) for value in values)


def running_pod() -> Object:
    """Return a pod with the fields that the API server, kubelets and controllers add."""
    made = whole_pod()
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-5d8", "uid": "x", "controller": True}
    note = {f"rebalancer.trimaran.io/{key}": "n" for key in ("target", "target-source")}
    made["metadata"] |= {
        "uid": "u", "creationTimestamp": TIME, "deletionTimestamp": TIME, "deletionGracePeriodSeconds": 30,
        "ownerReferences": [owner], "labels": {**made["metadata"]["labels"], **labels},
        "annotations": {**made["metadata"]["annotations"], **note, "rebalancer.trimaran.io/target-until": TIME},
    }  # fmt: skip
    made["spec"] |= {
        "nodeName": "n", "schedulerName": "s", "terminationGracePeriodSeconds": 30, "overhead": {"cpu": "1"},
        "priorityClassName": "c", "schedulingGroup": {"podGroupName": "g"}, "resources": {"requests": {"cpu": "1"}},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "w", "emptyDir": {}}],
    }  # fmt: skip
    state = {"terminated": {"reason": "OOMKilled", "exitCode": 1, "finishedAt": TIME}}
    container = {
        "name": "c", "restartCount": 1, "state": {"waiting": {"reason": "x"}}, "lastState": state,
        "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}},
    }  # fmt: skip
    conditions = [
        {"type": kind, "status": status, "reason": "x", "lastTransitionTime": TIME}
        for kind, status in (("Ready", "True"), ("PodScheduled", "False"))
    ]
    made["status"] = {
        "phase": "Running", "startTime": TIME, "qosClass": "Burstable", "nominatedNodeName": "n",
        "conditions": conditions, "containerStatuses": [container], "resources": {"requests": {"cpu": "1"}},
        "nodeAllocatableResourceClaimStatuses": [{"resources": {"cpu": "1"}, "containers": ["c"]}],
    }  # fmt: skip
    return made


PLAIN: Final = Pod.from_k8s(running_pod())


def read_pod(each: Mapping[str, Any]) -> object:
    """Read a pod and all that is derived from it."""
    return labelled_group(Pod.from_k8s(each)), TargetNote.read(get(get(each, "metadata"), "annotations") or {})


def read_facts(each: Mapping[str, Any]) -> object:
    """Read the facts about a pod that was read before it got a field of another form."""
    return PodFacts.from_k8s(each, PLAIN)


def other(kind: str, version: str, **fields: Any) -> tuple[Object, Read]:
    """Return an object of a kind that plugins read, and its reader."""
    metadata = {"name": "o", "namespace": "default"}
    document = {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
    return document, lambda each: ObjectCache().put(kind, each)


_WORKLOADS: Final = [
    {"workload": {"selector": "a"}, "dependencies": [{"workload": {"selector": "b"}, "maxNetworkCost": 5}]}
]
_ORIGINS: Final = [{"origin": "a", "costList": [{"destination": "b", "networkCost": 5}]}]
DECODERS: Final[Mapping[str, tuple[Object, Read]]] = {
    **{f"{each.document['kind']}-{place}": (each.document, each.read) for place, each in enumerate(KINDS)},
    "Pod": (running_pod(), read_pod),
    "Pod-facts": (running_pod(), read_facts),
    "Pod-manifest": (running_pod(), ManifestReader().read),
    "Pod-controller": (running_pod()["metadata"], controller_of),
    "PodGroup-in-tree": (
        {"apiVersion": "scheduling.k8s.io/v1beta1", "metadata": {"name": "g", "creationTimestamp": TIME},
         "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},
        PodGroup.from_k8s,
    ),
    "AppGroup": other(
        "AppGroup", "appgroup.diktyo.x-k8s.io/v1alpha1", spec={"workloads": _WORKLOADS},
        status={"topologyOrder": [{"workload": {"selector": "a"}, "index": 1}]},
    ),
    "NetworkTopology": other(
        "NetworkTopology", "networktopology.diktyo.x-k8s.io/v1alpha1",
        spec={"weights": [{"name": "w", "topologyList": [{"topologyKey": "zone", "originList": _ORIGINS}]}]},
    ),
    "NodeDiskIOInfo": other(
        "NodeDiskIOInfo", "diskio.x-k8s.io/v1alpha1", spec={"nodeName": "n", "reservedPods": ["u"]},
        status={"allocatableBandwidth": {"d": {"status": {"total": "1G", "read": "1G", "write": "1G"}}}},
    ),
    "SeccompProfile": other(
        "SeccompProfile", "security-profiles-operator.x-k8s.io/v1beta1",
        spec={"syscalls": [{"action": "SCMP_ACT_ALLOW", "names": ["read"]}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("document", "read"), DECODERS.values(), ids=DECODERS)
def test_a_decoder_raises_a_value_error_only(document: Object, read: Read) -> None:
    """Whatever a field holds, an object is read or refused with a ValueError."""
    read(document)
    refused = 0
    for each in broken(document):
        try:
            read(each)
        except ValueError:
            refused += 1
    assert refused or read is controller_of or document.get("kind") == "CSIDriver"  # of which one bool is read


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 1e30, float("nan"), "2", True])
def test_numbers_beyond_their_field_are_refused(number: object) -> None:
    """A number that the API server cannot have sent is named with its field; the largest and smallest are read."""
    with pytest.raises(ValueError, match=r"^spec\.replicas:"):
        get_whole({"replicas": number}, "replicas", "spec")
    with pytest.raises(ValueError, match=r"csinode n: spec\.drivers\.count:"):
        drivers = [{"name": "d", "allocatable": {"count": number}}]
        NodeDrivers.from_k8s({"metadata": {"name": "n"}, "spec": {"drivers": drivers}})
    for largest in (2**31 - 1, -(2**31)):
        assert get_whole({"replicas": largest}, "replicas", "spec") == largest


@pytest.mark.parametrize("text", ["1_0", " 5", "\u0665", "NaN", "9" * 5000])
def test_annotations_with_numbers_are_read_as_go_reads_them(text: str) -> None:
    """Python takes more texts for numbers: a PriorityClass with such a one protects nothing."""
    annotations = {"preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority": text}
    found = PriorityClass.from_k8s({"metadata": {"annotations": annotations}, "value": 1})
    assert found.least_preemptor is None


def test_network_costs_saturate() -> None:
    """Costs of 64 bits are read; their sums over a cluster fit 64 bits."""
    costs = [{"origin": "a", "costList": [{"destination": str(cost), "networkCost": cost}]} for cost in (-(2**63), 5)]
    weights = [{"name": "w", "topologyList": [{"topologyKey": "zone", "originList": costs}]}]
    assert set(NetworkTopology.from_k8s({"spec": {"weights": weights}}).costs.values()) == {-(2**40), 5}
    with pytest.raises(ValueError, match="maxNetworkCost"):
        AppGroup.from_k8s({"spec": {"workloads": [{"dependencies": [{"maxNetworkCost": 2**63}]}]}})


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59:59"])
def test_times_without_a_zone_at_the_end_of_years_raise_a_value_error(text: str) -> None:
    """Such a time may have no Unix time; it is one or a ValueError."""
    with contextlib.suppress(ValueError):
        assert unix_seconds(text, "metadata") is not None


class _NoRequests:
    """Sender that must not be used."""

    def send(self, *_args: Any, **_options: Any) -> Any:
        raise AssertionError("no request")


def _is_nameless(each: Object) -> bool:
    """Return whether an object has a name or identity that is nested deeper than JSON that is read."""
    metadata = each["metadata"]
    return isinstance(metadata, dict) and any(metadata.get(key) is VALUES[-1] for key in ("name", "namespace", "uid"))


def _node(name: str) -> Object:
    return {**KINDS[0].document, "metadata": {"name": name, "uid": name, "annotations": {"trimaran.io/load-x": "1"}}}


def _pod(name: str) -> Object:
    made = running_pod()
    made["metadata"] |= {"name": name, "uid": name}
    return made


def _stores() -> Iterator[tuple[str, ReflectorStore, Object]]:
    """Yield the stores of reflectors that read objects."""
    queue = EventQueue()
    yield "scheduler's pods", PodFeed(queue), _pod("odd")
    yield "scheduler's nodes", NodeFeed(queue), _node("odd")
    yield "scheduler's others", KindEventHandler("PriorityClass", queue), KINDS[12].document
    yield "soft taints", NodeStateCache(), _node("odd")
    yield "workloads", _PodStore(ManifestReader()), _pod("odd")
    yield "failed pods", RejectionFeed({"s"}, lambda _node, _why: None), _pod("odd")
    for rule in (POD_GROUP_STATUS, QUOTA_STATUS):
        writer = ObjectStatusWriter(rule, _NoRequests(), lambda: False)  # type: ignore[arg-type]
        kind = rule.plural.removesuffix("s")
        document = next(each.document for each in KINDS if str(each.document["kind"]).lower() == kind)
        yield rule.plural, writer.objects, document
        yield f"pods of {rule.plural}", writer.pods, _pod("odd")


@pytest.mark.parametrize(("store", "document"), [each[1:] for each in _stores()], ids=[each[0] for each in _stores()])
def test_a_store_goes_on_after_an_object_that_cannot_be_read(store: ReflectorStore, document: Object) -> None:
    """Neither a list nor an event with an odd object raises, which would end the watch and list all objects again."""
    values = (None, 1e30, 10**400, "x", [], ["x"], {"a": None}, VALUES[-1])
    odd = [each for each in broken(document, values) if not _is_nameless(each)]
    store.replace(iter([*odd, document]))
    for each in odd:
        store.put(each)
        store.drop(each)
    store.put(document)


def test_the_soft_taints_know_a_node_next_to_an_unreadable_one() -> None:
    """The unreadable one is unknown or stays as it was."""
    cache = NodeStateCache()
    cache.replace([{**_node("bad"), "spec": {"taints": 5}}, _node("good")])
    assert cache.all().keys() == {"good"}
    cache.put({**_node("good"), "spec": {"taints": [5]}})
    assert cache.get("good") is not None


def test_observers_of_pods_go_on() -> None:
    """The planned targets follow every pod that can be read, whatever its deletion says."""
    reader, targets = pod_reader(), PlannedTargets(clock=lambda: 0.0)
    seen = 0
    for each in broken(_pod("odd")):
        pod = reader.read(each)
        if pod is not None:
            seen += 1
            targets.put(each, pod)
    assert seen
    nodes = ObjectReader(Node.from_k8s)
    assert nodes.read({"metadata": {"name": ["x"]}}) is None


@pytest.mark.parametrize("path", [*WORKLOADS.values(), BUDGETS, SCALERS, *PATHS[:2]])
def test_the_rebalancer_watches_on(path: str) -> None:
    """Its lists arrive although one object of each kind cannot be read, and so do events."""
    api = WatchedApi()
    plain = api.objects[path][0] if api.objects[path] else {"metadata": {"name": "o", "namespace": "default"}}
    odd = [{**plain, key: value} for key in ("spec", "status", "metadata") for value in VALUES]
    odd += [{**plain, "spec": {"replicas": 1e30}}, {**plain, "status": {"disruptionsAllowed": 1e30}}]
    api.objects[path] = [*odd, *api.objects[path]]
    watch = ClusterWatch(api, api)
    watch.start()
    try:
        wait_until(lambda: watch.is_synced, "the lists arrive")
        for each in odd[:5]:
            api.tell(path, "MODIFIED", each)
        assert not watch.failures
    finally:
        watch.close()
