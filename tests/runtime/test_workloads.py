"""The workload of a pod, by its metadata and one hop of owners."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kubernetes.workloads import Owner, Workload, revision_of, workload_of

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,40}[a-z0-9])?", fullmatch=True)
TEKTON = {"tekton.dev/pipeline": "build", "tekton.dev/pipelineTask": "compile", "tekton.dev/task": "go"}


@pytest.mark.parametrize(
    ("pod", "labels", "owner", "expected"),
    [
        ("web-7f9c-x7k2p", {"pod-template-hash": "7f9c"}, Owner("ReplicaSet", "web-7f9c"), ("Deployment", "web")),
        ("web-7f9c-x", {"rollouts-pod-template-hash": "7f9c"}, Owner("ReplicaSet", "web-7f9c"), ("Rollout", "web")),
        ("web-x7k2p", {}, Owner("ReplicaSet", "web-1"), ("ReplicaSet", "web-1")),
        ("db-0", {}, Owner("StatefulSet", "db-0"), ("StatefulSet", "db-0")),
        ("save-29038120-x7k2p", {}, Owner("Job", "save-29038120"), ("CronJob", "save")),
        ("save-1714521600-x7k2p", {}, Owner("Job", "save-1714521600"), ("CronJob", "save")),
        ("save-20240501-x7k2p", {}, Owner("Job", "save-20240501"), ("Job", "save")),
        ("migrate-2-x7k2p", {}, Owner("Job", "migrate-2"), ("Job", "migrate")),
        ("etl-1a2b3c4d5e6f7a8b-exec-12", {"spark-role": "executor"}, Owner("Pod", "etl-driver"),
         ("SparkApplication", "etl")),
        ("etl-1a2b3c4d5e6f7a8b-driver", {"spark-role": "driver"}, None, ("SparkApplication", "etl")),
        ("x-exec-1", {"spark-role": "executor", "spark-app-name": "etl-2024-05-01"}, Owner("Pod", "x-driver"),
         ("SparkApplication", "etl")),
        ("etl-x7k2p-load-1234567890", {}, Owner("Workflow", "etl-x7k2p"), ("Workflow", "etl-load")),
        ("etl-x7k2p-1234567890", {}, Owner("Workflow", "etl-x7k2p"), ("Workflow", "etl")),
        ("build-run-x7k2p-compile-pod", TEKTON, Owner("TaskRun", "build-run-x7k2p-compile"),
         ("TaskRun", "build-compile")),
        ("go-run-pod", {"tekton.dev/task": "go"}, Owner("TaskRun", "go-run-x7k2p"), ("TaskRun", "go")),
        ("kube-proxy-node-1", {}, Owner("Node", "node-1"), ("Node", "kube-proxy")),
        ("notebook-alice", {}, None, ("Pod", "notebook-alice")),
        ("proxy-https", {}, None, ("Pod", "proxy-https")),
        ("run-2024-05-01t12-00-00z", {}, None, ("Pod", "run")),
        ("run-550e8400-e29b-41d4-a716-446655440000", {}, None, ("Pod", "run")),
        ("train-3", {}, None, ("Pod", "train")),
        ("29038120", {}, None, ("Pod", "29038120")),
        ("main-1", {}, Owner("Cluster", "main-1"), ("Cluster", "main-1")),
        ("ray-head", {}, Owner("RayCluster", "ray-x7k2p"), ("RayCluster", "ray")),
    ],
)  # fmt: skip
def test_names_without_a_lookup(
    pod: str, labels: dict[str, str], owner: Owner | None, expected: tuple[str, str]
) -> None:
    """Without a lookup of owners the names and the hash labels of the usual controllers name the workload."""
    assert workload_of("ns", pod, labels, owner) == Workload("ns", *expected)


def test_the_controller_of_the_controller_names_the_workload() -> None:
    """One hop leads from a ReplicaSet or a Job to its controller; other owners are not looked up."""
    parents = {("ReplicaSet", "a"): Owner("Rollout", "shop"), ("Job", "b"): Owner("JobSet", "train-20240501")}
    asked = []

    def parent_of(namespace: str, owner: Owner) -> Owner | None:
        asked.append((namespace, owner.name))
        return parents.get((owner.kind, owner.name))

    def named(owner: Owner) -> Workload:
        return workload_of("ns", "pod", {}, owner, parent_of=parent_of)

    assert named(Owner("ReplicaSet", "a")) == ("ns", "Rollout", "shop")
    assert named(Owner("Job", "b")) == ("ns", "JobSet", "train")
    assert named(Owner("Job", "unknown-1")) == ("ns", "Job", "unknown")
    assert named(Owner("StatefulSet", "c")) == ("ns", "StatefulSet", "c")
    assert asked == [("ns", "a"), ("ns", "b"), ("ns", "unknown-1")]


def test_owner_labels_come_first_and_in_order() -> None:
    """The first label of the setting that a pod has, and that is not empty, names its workload, unchanged."""
    labels = {"team": "search", "app": "", "run": "nightly-1"}
    owner = Owner("Job", "x")
    assert workload_of("ns", "p", labels, owner, owner_labels=("app", "run", "team")) == ("ns", "Label", "nightly-1")
    assert workload_of("ns", "p", labels, owner, owner_labels=("team", "run")) == ("ns", "Label", "search")
    assert workload_of("ns", "p", labels, owner, owner_labels=("none",)) == ("ns", "Job", "x")


def test_a_generated_name_is_known_exactly() -> None:
    """A pod without a controller that has a generateName is named by it, whatever its suffix looks like."""
    assert workload_of("ns", "https-crack", {}, None, generate_name="https-") == ("ns", "Pod", "https")


@given(
    name=NAMES, kind=st.sampled_from(["", "Job", "ReplicaSet", "Workflow", "TaskRun", "Node", "Custom"]), owner=NAMES
)
def test_every_legal_name_gives_a_stable_name(name: str, kind: str, owner: str) -> None:
    """Every legal name of a pod and its controller gives a name that is not empty and names itself."""
    named = workload_of("ns", name, {}, Owner(kind, owner) if kind else None)
    assert named.name
    assert named.name in name or named.name in owner or kind == "Workflow"
    if not kind:
        assert workload_of("ns", named.name, {}, None) == named


@given(
    base=st.sampled_from(["web", "a.b-c", "x1"]), run=st.from_regex(r"[bcdfghjklmnpqrstvwxz2456789]{5}", fullmatch=True)
)
def test_runs_of_one_program_are_one_workload(base: str, run: str) -> None:
    """Jobs that differ in Kubernetes' random suffix only are one workload."""
    assert workload_of("ns", "pod", {}, Owner("Job", f"{base}-{run}")) == ("ns", "Job", base)


def test_revisions() -> None:
    """The hash label of the controller is the revision of the pod's template."""
    assert revision_of({"pod-template-hash": "a"}) == "a"
    assert revision_of({"controller-revision-hash": "b"}) == "b"
    assert revision_of({"rollouts-pod-template-hash": "c", "pod-template-hash": ""}) == "c"
    assert revision_of({}) == ""
