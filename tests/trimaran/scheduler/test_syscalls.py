"""SySched: nodes where a pod adds the fewest system calls that its neighbours do not need."""

import random

import numpy as np
import pytest
from control_plane.manifests import Object, node
from support.configured import Configured, pod, profile

from runtime.kubernetes.objects import SECCOMP_ANNOTATIONS, Pod
from scoring import MetricsTable

KIND = "SeccompProfile"
CALLS = [f"call{number}" for number in range(30)]


def seccomp(name: str, calls: list[str], namespace: str = "default") -> tuple[str, Object]:
    """Return a SeccompProfile that allows some calls, and denies others."""
    listed = [
        {"action": "SCMP_ACT_ALLOW", "names": calls[::2]}, {"action": "SCMP_ACT_LOG", "names": calls[1::2]},
        {"action": "SCMP_ACT_ERRNO", "names": ["reboot"]},
    ]  # fmt: skip
    return KIND, {"metadata": {"name": name, "namespace": namespace}, "spec": {"syscalls": listed}}


def with_profile(name: str, *profiles: str, **fields: object) -> Object:
    """Return a pod whose containers have profiles, given as ``namespace/name``."""
    made = pod(name, **fields)
    path = "operator/{}.json"
    (main,) = made["spec"]["containers"]
    made["spec"]["containers"] = [
        {
            **main, "name": f"c{number}",
            "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": path.format(each)}},
        }
        for number, each in enumerate(profiles)
    ] or [main]  # fmt: skip
    return made


def scores(machine: Configured, manifest: Object) -> list[int]:
    (weighted,) = (each for each in machine.setup.profiles[0].scores.plugins if each.plugin.name == "SySched")
    table = machine.scheduler.state.table
    return weighted.plugin.score(
        Pod.from_k8s(manifest, kept_annotations=machine.setup.annotations), table, MetricsTable.empty(table)
    ).tolist()


def cluster(*others: tuple[str, Object], nodes: int = 2, **args: object) -> Configured:
    chosen = profile("SySched", "score", args=args, without={"score": ["*"]})
    return Configured(chosen, [node(f"n{place}") for place in range(nodes)], others)


def test_the_score_is_the_formula_in_random_clusters() -> None:
    """Against sets, while pods come and go and a profile changes."""
    dice = random.Random(1)
    allowed = {f"p{number}": dice.sample(CALLS, dice.randint(1, 12)) for number in range(6)}
    machine = cluster(*(seccomp(name, calls) for name, calls in allowed.items()), nodes=4)
    there: dict[int, dict[str, str]] = {place: {} for place in range(4)}  # profile by pod
    for step in range(60):
        place, name = dice.randrange(4), dice.choice(list(allowed))
        if there[place] and dice.random() < 0.4:
            gone = dice.choice(list(there[place]))
            del there[place][gone]
            machine.scheduler.drop_pod(gone, 0.0)
        else:
            there[place][f"pod{step}"] = name
            machine.put(with_profile(f"pod{step}", f"default/{name}"), node=f"n{place}")
        if step == 30:
            allowed["p0"] = CALLS[:7]
            machine.scheduler.put_other(*seccomp("p0", allowed["p0"]), 0.0)
        new = dice.choice(list(allowed))
        own = set(allowed[new])
        expected = [formula(own, [set(allowed[each]) for each in pods.values()]) for pods in there.values()]
        assert scores(machine, with_profile("new", f"default/{new}")) == expected


def formula(own: set[str], others: list[set[str]]) -> int:
    """Return the number of calls that are not needed."""
    host: set[str] = set().union(*others)
    if not host:
        return 0
    return len(host - own) + sum(len((host | own) - each) for each in others)


def test_pods_of_equal_names_in_two_namespaces_are_two_pods() -> None:
    """Upstream knows pods by name alone."""
    machine = cluster(seccomp("small", CALLS[:2]), seccomp("large", CALLS[:8]))
    for number, namespace in enumerate(("a", "b")):
        twin = with_profile("twin", "default/small", namespace=namespace)
        twin["metadata"]["uid"] = f"twin-{number}"
        machine.put(twin, node="n0")
    assert scores(machine, with_profile("new", "default/large"))[0] == 2 * 6


def test_all_profiles_of_a_pod_count_also_those_in_annotations() -> None:
    """Upstream stops at the first annotation."""
    context = {"seccompProfile": {"type": "Localhost", "localhostProfile": "operator/x/one.json"}}
    manifest = {
        "kind": "Pod", "spec": {"securityContext": context},
        "metadata": {"name": "p", "annotations": {
            "seccomp.security.alpha.kubernetes.io/pod": "localhost/operator/x/two.json",
            "container.seccomp.security.alpha.kubernetes.io/c": "localhost/operator/x/three.json",
        }},
    }  # fmt: skip
    kept = Pod.from_k8s(manifest, kept_annotations=(SECCOMP_ANNOTATIONS,))
    assert kept.seccomp_profiles == ("x/one", "x/two", "x/three")
    assert Pod.from_k8s(manifest).seccomp_profiles == ()
    assert Pod.from_k8s(pod("plain"), kept_annotations=(SECCOMP_ANNOTATIONS,)).seccomp_profiles == ()


def test_a_pod_without_a_profile_has_the_default_one() -> None:
    """Without a default profile, all nodes score alike."""
    machine = cluster(seccomp("small", CALLS[:2]), seccomp("everything", CALLS), defaultProfileName="everything")
    machine.put(with_profile("there", "default/small"), node="n0")
    assert scores(machine, pod("new")) == [0 + len(CALLS) - 2, 0]
    assert np.unique(scores(cluster(seccomp("small", CALLS[:2])), pod("new"))).size == 1


def test_an_empty_name_is_an_error() -> None:
    """The message has the key."""
    with pytest.raises(ValueError, match="defaultProfileName"):
        cluster(defaultProfileName="")
