"""Our scheduler against a real kube-scheduler: feasible nodes, every score, every sum and the reasons of every refusal.

kube-scheduler places pods of every shape; each attempt in its log is made again by our node selector, in the log's
order, on the nodes, pods and volumes of that moment. kube-scheduler batches equal pods: the node that it found best for
one of them is taken for the next ones without a look at other nodes. It does not batch pods with default topology
spread constraints, so the equal pods have a profile without them.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from control_plane.api import Object
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from control_plane.manifests import container, pod
from control_plane.rule_shapes import NAMESPACES, RULE_SHAPES, zoned_nodes
from control_plane.scheduler import Attempt, Scheduler
from control_plane.shapes import RUNTIME_CLASS, SHAPES, pod_level
from control_plane.volume_shapes import VOLUME_SHAPES, late_claims, storage
from support.servers import wait_until

from runtime.kubernetes.paths import LISTS
from scoring import MetricsTable, NodeTable, Pod
from scoring.kubernetes_version import KUBERNETES_VERSIONS, LATEST_VERSION, at_least
from scoring.plugins.filtering import count_reasons
from trimaran.scheduler.framework.extension_points import Rejection
from trimaran.scheduler.framework.feasibility import run_filters
from trimaran.scheduler.framework.profile import SchedulerProfile
from trimaran.scheduler.framework.scheduler import OtherObjects
from trimaran.scheduler.plugins.volumes.binding import VolumeBinding
from trimaran.scheduler.profiles.configuration import read_setup

pytestmark = pytest.mark.e2e

NODES = 100
PODS = 500
WITH_VOLUMES = 80
EQUAL = 60
CONFIGURATION: Mapping[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"schedulerName": "default-scheduler"},
        {
            "schedulerName": "batching",
            "pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}],
        },
    ],
}
_PODS, _VOLUMES, _CLAIMS = (f"/api/v1/{kind}" for kind in ("pods", "persistentvolumes", "persistentvolumeclaims"))
_BINDER = ("persistentvolume-binder-controller",)
# Messages that older versions word differently; these name the taint.
_TAINT = re.compile(r"taint \{.*\}")
_NOW = {
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode": (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod"
    )
}
_REASONS = re.compile(r"0/\d+ nodes are available: (.*?)\. (?:no new claims|preemption:)")


@dataclass
class Comparison:
    """Number of comparisons by kind, and a description of each difference."""

    compared: dict[str, int] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)

    def check(self, kind: str, pod: str, theirs: object, ours: object) -> None:
        """Compare one value."""
        self.compared[kind] = self.compared.get(kind, 0) + 1
        if theirs != ours:
            self.different.append(f"{kind} of {pod}: {theirs}, computed {ours}"[:2000])


@dataclass
class Run:
    """Objects from the API after a kube-scheduler's run, and the attempts in its log."""

    nodes: list[Object] = field(repr=False)
    pods: Mapping[str, Object] = field(repr=False)
    namespaces: Mapping[str, Mapping[str, str]] = field(repr=False)
    attempts: list[Attempt] = field(repr=False)
    storage: Mapping[str, list[Object]] = field(repr=False)
    claims: Mapping[str, Object] = field(repr=False)
    volumes: Mapping[str, Object] = field(repr=False)
    version: str = LATEST_VERSION

    def compare(self) -> Comparison:
        """Make every attempt again, and compare."""
        result = Comparison()
        last = {attempt.pod: number for number, attempt in enumerate(self.attempts)}
        table = NodeTable.from_k8s(self.nodes)
        table.namespace_labels = self.namespaces
        setup = read_setup(CONFIGURATION, binds_claims=True, kubernetes_version=self.version)
        assert setup.others is not None
        for kind, objects in self.storage.items():
            for each in objects:
                setup.others.put(kind, each)
        profiles = {profile.scheduler_name: profile for profile in setup.profiles}
        prepared = {name: each.scores.prepare(table, MetricsTable.empty(table)) for name, each in profiles.items()}
        for number, attempt in enumerate(self.attempts):
            document = self.pods[attempt.pod]
            pod = Pod.from_k8s({**document, "spec": {**document["spec"], "nodeName": ""}})
            profile, scores = profiles[pod.scheduler_name], prepared[pod.scheduler_name]
            feasible = run_filters(profile.filters, pod, table)
            names = {table.names[row] for row in np.flatnonzero(feasible.feasible)}
            is_last = number == last[attempt.pod]
            node_name = document["spec"].get("nodeName", "")
            if attempt.totals:
                result.check("feasible nodes", attempt.pod, set(attempt.totals), names)
            elif is_last and attempt.hint == node_name != "":
                totals = scores.total(pod, feasible.feasible)
                best = {table.names[row] for row in np.flatnonzero(totals == totals.max())}
                result.check("choice in a batch", attempt.pod, True, node_name in best)
            elif is_last and node_name:
                result.check("only feasible node", attempt.pod, {node_name}, names)
            if attempt.totals and names == set(attempt.totals):
                self._compare_scores(result, attempt, scores.score(pod, among=np.flatnonzero(feasible.feasible)))
                best = max(attempt.totals.values())
                result.check("choice", attempt.pod, True, not is_last or attempt.totals.get(node_name) == best)
            if is_last and not node_name:
                result.check("reasons", attempt.pod, _reasons(document), dict(count_reasons(feasible.verdicts)))
            if is_last and node_name:
                self._bind_claims(result, profile, pod, node_name, setup.others)
                table.add(Pod.from_k8s(document))
        return result

    def _bind_claims(
        self, result: Comparison, profile: SchedulerProfile, pod: Pod, node_name: str, objects: OtherObjects
    ) -> None:
        """Compare the volumes for a placed pod's claims, and let the claims have their volumes."""
        (plugin,) = (each for each in profile.pre_bind if isinstance(each, VolumeBinding))
        assert plugin.reserve(pod, node_name) is None
        writes = plugin.pre_bind(pod, node_name)
        assert not isinstance(writes, Rejection)
        claims = [self.claims[name] for name in pod.scheduling.claims]
        late = [each["spec"]["volumeName"] for each in claims if each["spec"]["storageClassName"]]
        if late:  # of volumes of one size on a node, kube-scheduler takes any
            chosen = [write.path.rpartition("/")[2] for write in writes]
            sizes = [
                sorted(self.volumes[name]["spec"]["capacity"]["storage"] for name in some) for some in (late, chosen)
            ]
            result.check("sizes of volumes", pod.name, *sizes)
        plugin.unreserve(pod, node_name)
        for each in claims:
            objects.put("PersistentVolumeClaim", each)
            objects.put("PersistentVolume", self.volumes[each["spec"]["volumeName"]])

    def _compare_scores(self, result: Comparison, attempt: Attempt, scores: Any) -> None:
        for index, name in enumerate(scores.names):
            result.check("total", f"{attempt.pod} on {name}", attempt.totals[name], int(scores.total[index]))
            for plugin, ours in scores.plugins.items():
                theirs = attempt.scores.get(plugin, {}).get(name)
                computed = None if ours.terms is None else int(ours.normalized[index]) * ours.weighted.weight
                if theirs is not None or computed:
                    result.check(plugin, f"{attempt.pod} on {name}", theirs or 0, computed or 0)


def _reasons(document: Object) -> dict[str, int]:
    """Return the number of nodes by reason, from the message of the pod's condition."""
    message = next(each["message"] for each in document["status"]["conditions"] if each["type"] == "PodScheduled")
    match = _REASONS.match(message)
    assert match is not None, message
    counts: Counter[str] = Counter()
    for part in match[1].split(", "):
        number, reason = part.split(" ", 1)
        counts[_NOW.get(reason, _TAINT.sub("taint(s)", reason))] += int(number)
    return dict(counts)


@pytest.fixture(scope="module", params=["", pytest.param("-oldest", marks=pytest.mark.oldest)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Results of a kube-scheduler's run over pods of all shapes, with the API server of its version."""
    dice, folder = random.Random(37), tmp_path_factory.mktemp("cluster")
    with ControlPlane(folder, f"kube-apiserver{request.param}") as cluster, ControllerManager(cluster, _BINDER):
        api = cluster.api
        api.create(RUNTIME_CLASS, *NAMESPACES)
        api.create(*zoned_nodes(dice, NODES))
        api.create(*storage(dice, NODES))
        shapes = (*RULE_SHAPES, *RULE_SHAPES, *SHAPES, pod_level)
        pods = [shapes[number % len(shapes)](dice, f"pod-{number}") for number in range(PODS)]
        pods += [VOLUME_SHAPES[number % 2](dice, f"with-volume-{number}") for number in range(WITH_VOLUMES)]
        api.create(*late_claims(dice, pods))
        wait_until(lambda: _are_settled([*api.items(_VOLUMES), *api.items(_CLAIMS)]), "volumes are bound")
        kinds = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode")
        stored = {kind: api.items(LISTS[kind]) for kind in kinds}
        with Scheduler(cluster, CONFIGURATION["profiles"], f"kube-scheduler{request.param}") as scheduler:
            for some in (pods, [_equal(f"equal-{number}") for number in range(EQUAL)]):
                api.create(*some)
                wait_until(lambda: all(map(_is_decided, api.items(_PODS))), "all pods are decided", 120)
        by_name = {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in api.items(_PODS)}
        namespaces = api.items("/api/v1/namespaces")
        labels = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in namespaces}
        claims, volumes = ({each["metadata"]["name"]: each for each in api.items(path)} for path in (_CLAIMS, _VOLUMES))
        nodes = api.items("/api/v1/nodes")
        version = KUBERNETES_VERSIONS[0 if request.param else -1]
        yield Run(nodes, by_name, labels, scheduler.attempts(), stored, claims, volumes, version)


def _equal(name: str) -> Object:
    """Return a pod that equals others but for its name, and is placed before all other pods."""
    requests = {"cpu": "1500m", "memory": "1Gi"}
    return pod(name, container(requests=requests), schedulerName="batching", priority=5000, preemptionPolicy="Never")


def _are_settled(volumes_and_claims: list[Object]) -> bool:
    """Return whether all volumes and claims that name each other are bound, and other volumes are available."""
    return all(each["status"].get("phase") == _settled_phase(each["spec"]) for each in volumes_and_claims)


def _settled_phase(spec: Object) -> str:
    if {"claimRef", "volumeName"} & spec.keys():
        return "Bound"
    return "Available" if "capacity" in spec else "Pending"


def _is_decided(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName") or pod["status"].get("conditions"))


def test_every_attempt_is_decided_as_by_kube_scheduler(run: Run) -> None:
    """Feasible nodes, scores, sums, choices and reasons are equal in every attempt."""
    comparison = run.compare()
    assert not comparison.different, f"{len(comparison.different)} differ of {comparison.compared}"
    kinds = comparison.compared
    assert kinds["feasible nodes"] + kinds.get("only feasible node", 0) > PODS * 0.7
    assert kinds["reasons"] > 10
    assert (kinds.get("choice in a batch", 0) > 5) == at_least(run.version, "1.35")
    assert kinds["sizes of volumes"] > 20
    for plugin in ("PodTopologySpread", "InterPodAffinity", "NodeAffinity", "TaintToleration", "ImageLocality"):
        assert kinds[plugin] > NODES, plugin
    assert (kinds.get("VolumeBinding", 0) > 10) == at_least(run.version, "1.37")
