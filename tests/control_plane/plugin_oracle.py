"""The scheduler of kubernetes-sigs/scheduler-plugins as oracle for our plugins, in hundreds of small clusters at once.

Each scenario has nodes of its own, which its pods select by the label ``scenario``, and its pending pods have different
priorities where their order matters. So all scenarios run in one cluster, and the scheduler starts when all objects are
there. ``decided`` returns the node of every pod; ``differences`` looks for a way in which our scheduler, with the same
configuration and objects, breaks ties between equal nodes so that it decides the same. What was decided is kept
in a file by seed, since a scenario follows from its seed:

    scenarios = [draw(seed) for seed in range(200)]
    outcomes = decided(cluster, PROFILE, scenarios)                                # e2e, with a real scheduler
    assert not differences(PROFILE, scenario, outcome)                             # and for each, without one

``plugin_cases`` has the profile, the scenarios and the file of each plugin.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import requests
from control_plane.api import Api, Object, collection, names, path_of
from control_plane.cluster import SCHEDULER, ControlPlane
from control_plane.scheduler import Scheduler as RealScheduler
from support.servers import wait_until

from runtime.kubernetes.objects import Node, Pod
from trimaran.scheduler.framework.decisions import Bind, Unschedulable
from trimaran.scheduler.framework.scheduler import Scheduler
from trimaran.scheduler.profiles.configuration import read_setup

LABEL: Final = "scenario"
_PODS: Final = "/api/v1/pods"
_NAMESPACES: Final = "/api/v1/namespaces"
_POD: Final = {"apiVersion": "v1", "kind": "Pod"}  # lists leave this out
_QUIET_SECONDS = 5.0
_MOST_SECONDS = 120.0
_STEP_SECONDS, _STEPS = 5.0, 12  # of our scheduler's clock
_MOST_TRIES = 400
ALL_RIGHTS: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "oracle"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": SCHEDULER}],
}  # fmt: skip

Outcome = dict[str, str]
"""Node of each pod that is left, by the pod's name; "" for a pending pod."""


@dataclass
class PluginScenario:
    """Small cluster with pending pods.

    Attributes:
        name: name, with which the names of all objects begin.
        nodes: nodes with the label.
        bound: pods on nodes.
        pending: pods without a node, which select the label.
        others: further objects.
        one_by_one: create each pending pod only when nothing changes any more after the one before it; by default all
            pending pods are there before the scheduler starts.
        alike: pods whose names differ only in the last character are equal, and it is left to chance which of them get
            a node.
        terminating: names of the bound pods that are being deleted.
    """

    name: str
    nodes: list[Object] = field(default_factory=list)
    bound: list[Object] = field(default_factory=list)
    pending: list[Object] = field(default_factory=list)
    others: list[Object] = field(default_factory=list)
    terminating: frozenset[str] = frozenset()
    one_by_one: bool = False
    alike: bool = False

    def __post_init__(self) -> None:
        for each in self.nodes:
            each["metadata"].setdefault("labels", {})[LABEL] = self.name
        for each in self.pending:
            each["spec"].setdefault("nodeSelector", {})[LABEL] = self.name

    @property
    def namespaces(self) -> set[str]:
        """Namespaces of the objects."""
        objects = (*self.bound, *self.pending, *self.others)
        return {each["metadata"]["namespace"] for each in objects if "namespace" in each["metadata"]}


def custom_resource(group: str, version: str, kind: str, *, namespaced: bool = True, status: bool = False) -> Object:
    """Return a CustomResourceDefinition that accepts any fields; with ``status`` as a subresource of its own."""
    plural = collection({"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {}}).rpartition("/")[2]
    any_fields = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served: Object = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": any_fields}}
    if status:
        served["subresources"] = {"status": {}}
    metadata: Object = {"name": f"{plural}.{group}"}
    if group.endswith(".k8s.io"):  # protected names need the approval of Kubernetes' API reviewers
        metadata["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests only"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
        "spec": {
            "group": group, "scope": "Namespaced" if namespaced else "Cluster", "versions": [served],
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
        },
    }  # fmt: skip


def configuration(profile: Mapping[str, Any]) -> Object:
    """Return the KubeSchedulerConfiguration of a profile."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1, "profiles": [profile],
    }  # fmt: skip


def decided(
    cluster: ControlPlane,
    profile: Mapping[str, Any],
    scenarios: Sequence[PluginScenario],
    resources: Sequence[Object] = (),
    shared: Sequence[Object] = (),
) -> dict[str, Outcome]:
    """Return what the real scheduler decides in each scenario, by its name; delete all objects again.

    Args:
        cluster: control plane without other nodes or pods, with :data:`ALL_RIGHTS`.
        profile: profile of the KubeSchedulerConfiguration.
        scenarios: scenarios with different names.
        resources: CustomResourceDefinitions of the objects.
        shared: objects that all scenarios share.
    """
    api = cluster.api
    settings = {key: value for key, value in configuration(profile).items() if key.startswith("pod")}
    define(api, resources)
    _create_all(api, shared)
    _create(api, scenarios)
    with RealScheduler(cluster, [profile], "trimaran-scheduler", 2, **settings) as scheduler:
        state = _settled(api, scheduler)
        late = [each.pending for each in scenarios if each.one_by_one]
        for some in zip_longest(*late):
            _create_all(api, [each for each in some if each is not None])
            state = _settled(api, scheduler)
    _delete(api, scenarios, shared)
    outcomes: dict[str, Outcome] = {each.name: {} for each in scenarios}
    for name, node in state.items():
        outcomes[name.partition("-")[0]][name] = node
    return outcomes


def differences(
    profile: Mapping[str, Any], scenario: PluginScenario, outcome: Outcome, shared: Sequence[Object] = ()
) -> str:
    """Return how our scheduler decides otherwise, whatever the ties between equal nodes; "" if it decides the same."""
    scenario = replace(scenario, others=[*shared, *scenario.others])
    choices: list[int] = []
    for _ in range(_MOST_TRIES):
        ties = _Ties(choices)
        different = _replay(profile, scenario, outcome, ties)
        if not different:
            return ""
        choices = [*choices, *(0 for _ in ties.sizes[len(choices) :])][: len(ties.sizes)]
        while choices and choices[-1] + 1 >= ties.sizes[len(choices) - 1]:
            choices.pop()
        if not choices:
            break
        choices[-1] += 1
    return f"{scenario.name}: {different}"


def write_outcomes(file: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Keep outcomes in a file, a line for each scenario; a name loses the name of its scenario."""
    lines = []
    for name, outcome in outcomes.items():
        short = {pod.removeprefix(f"{name}-"): node.removeprefix(f"{name}-") for pod, node in sorted(outcome.items())}
        lines.append(json.dumps([name, short], separators=(",", ":")))
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def read_outcomes(file: Path) -> dict[str, Outcome]:
    """Return the outcomes in a file."""
    read = {}
    for line in file.read_text().splitlines():
        name, short = json.loads(line)
        read[name] = {f"{name}-{pod}": f"{name}-{node}" if node else "" for pod, node in short.items()}
    return read


class _Ties:
    """Random number generator that breaks ties as a list says; after its end the first of equals is taken."""

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices = choices
        self.sizes: list[int] = []

    def integers(self, size: int) -> int:
        """Return the next choice."""
        self.sizes.append(size)
        return self._choices[len(self.sizes) - 1] if len(self.sizes) <= len(self._choices) else 0


def _replay(profile: Mapping[str, Any], scenario: PluginScenario, outcome: Outcome, ties: _Ties) -> str:
    """Run our scheduler; return the first difference, or ""."""
    first = (*scenario.bound, *(() if scenario.one_by_one else scenario.pending))
    pods = {each["metadata"]["name"]: each for each in map(_with_uid, first)}
    scheduler = _scheduler(profile, scenario, pods, ties)
    names = [each["metadata"]["name"] for each in (*scenario.bound, *scenario.pending)]

    def kind(name: str) -> str:
        return name[:-1] if scenario.alike else name

    expected = {name: {node for other, node in outcome.items() if kind(other) == kind(name)} for name in names}
    now = 0.0
    for late in (None, *(scenario.pending if scenario.one_by_one else ())):
        if late is not None:
            pods[late["metadata"]["name"]] = _with_uid(late)
            scheduler.put_pod(Pod.from_k8s(pods[late["metadata"]["name"]]), now)
        for _ in range(_STEPS):
            now += _STEP_SECONDS
            different = _decide(scheduler, pods, expected, now)
            if different:
                return different
    final = Counter((kind(name), each["spec"].get("nodeName", "")) for name, each in pods.items())
    theirs = Counter((kind(name), node) for name, node in outcome.items())
    return "" if final == theirs else f"{sorted(theirs - final)}, computed {sorted(final - theirs)}"


def _decide(scheduler: Scheduler, pods: dict[str, Object], expected: Mapping[str, set[str]], now: float) -> str:
    """Carry out all decisions that are due; return the first that differs, or "".

    Args:
        scheduler: our scheduler.
        pods: pods by name; changed.
        expected: nodes that a pod may be on at the end, by its name; none if it is gone then.
        now: seconds.
    """
    while (decision := scheduler.next(now)) is not None:
        name = decision.pod.name
        if isinstance(decision, Bind):
            if expected[name] and decision.node_name not in expected[name]:
                return f"{name} is on {expected[name]}, computed {decision.node_name}"
            scheduler.bound(decision.pod.uid)
            pods[name]["spec"]["nodeName"] = decision.node_name
            scheduler.put_pod(Pod.from_k8s(pods[name]), now)
        elif isinstance(decision, Unschedulable) and decision.preemption is not None:
            for victim in decision.preemption.victims:
                scheduler.drop_pod(victim.uid, now)
                del pods[victim.name]
    return ""


def _scheduler(
    profile: Mapping[str, Any], scenario: PluginScenario, pods: Mapping[str, Object], ties: _Ties
) -> Scheduler:
    """Return our scheduler with all objects of a scenario."""
    setup = read_setup(configuration(profile), seed=0, preempts_shared=True)
    scheduler = Scheduler(setup.profiles, ties, setup.options, setup.others, setup.gangs)  # type: ignore[arg-type]
    scheduler.replace_nodes([Node.from_k8s(each, setup.annotations) for each in scenario.nodes], 0.0)
    for each in scenario.others:
        kinds = f"{each['kind']}.{each['apiVersion'].partition('/')[0]}", each["kind"]
        kind = next((kind for kind in kinds if kind in setup.kinds), "")
        if kind:
            scheduler.put_other(kind, each, 0.0)
    for name, each in pods.items():
        if name in scenario.terminating:
            each["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        scheduler.put_pod(Pod.from_k8s(each, kept_annotations=setup.annotations), 0.0)
    return scheduler


def _with_uid(manifest: Object) -> Object:
    copied = deepcopy(manifest)
    copied["metadata"]["uid"] = copied["metadata"]["name"]
    return copied


def _create(api: Api, scenarios: Sequence[PluginScenario]) -> None:
    namespaces = {name for each in scenarios for name in each.namespaces} - set(names(api.items(_NAMESPACES)))
    _create_all(api, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in namespaces])
    for kind in ("others", "nodes", "bound"):
        _create_all(api, [each for scenario in scenarios for each in getattr(scenario, kind)])
    _create_all(api, [each for scenario in scenarios if not scenario.one_by_one for each in scenario.pending])
    for scenario in scenarios:
        for each in (*scenario.bound, *(() if scenario.one_by_one else scenario.pending), *scenario.others):
            if each.get("status"):
                api.patch(f"{path_of(each)}/status", {"status": each["status"]})
            if each["metadata"]["name"] in scenario.terminating:
                api.delete(path_of(each))


def define(api: Api, resources: Sequence[Object]) -> None:
    """Create the CustomResourceDefinitions that are missing, and wait until they are served."""
    known = set(names(api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")))
    _create_all(api, [each for each in resources if each["metadata"]["name"] not in known])
    for each in resources:
        spec = each["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        wait_until(partial(_is_served, api, path), f"{path} is served")


def _create_all(api: Api, objects: Sequence[Object]) -> None:
    if objects:
        api.create(*objects)


def _delete(api: Api, scenarios: Sequence[PluginScenario], shared: Sequence[Object]) -> None:
    """Delete the objects of some scenarios; namespaces stay."""
    for each in api.items(_PODS):
        if each["metadata"].get("finalizers"):
            api.patch(path_of({**_POD, **each}), {"metadata": {"finalizers": None}})
    others = {collection(each) for scenario in scenarios for each in (*scenario.others, *shared)}
    for namespace in {"default", *(name for each in scenarios for name in each.namespaces)}:
        api.delete(f"/api/v1/namespaces/{namespace}/pods")
    for path in ("/api/v1/nodes", *sorted(others)):
        api.delete(path)
    wait_until(lambda: not api.items(_PODS), "the pods are deleted")


def _is_served(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except requests.HTTPError:
        return False
    return True


def _settled(api: Api, scheduler: RealScheduler) -> Outcome:
    """Return the node of each pod once all pending pods were tried and nothing changes for a while."""
    state: Outcome = {}
    since = time.monotonic()

    def is_settled() -> bool:
        nonlocal state, since
        pods = api.items(_PODS)
        current = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}
        if current != state:
            state, since = current, time.monotonic()
        tried = all(each["spec"].get("nodeName") or each["status"].get("conditions") for each in pods)
        return tried and time.monotonic() > since + _QUIET_SECONDS

    scheduler.process.wait_until(is_settled, "all pods are decided", _MOST_SECONDS)
    return state
