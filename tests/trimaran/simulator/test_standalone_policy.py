"""Replays that trimaran scheduler places as a whole: its queue, priorities, backoff and sampling."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from trimaran.cli.main import main
from trimaran.scheduler.profiles.configuration import default_document
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.policies.standalone import standalone_policy
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import PodUse, Trace, write_trace

IN_TREE = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "default-scheduler"}],
}


def world(*pods: tuple[int, int, int, int], nodes: int = 1, minutes: int = 12) -> Trace:
    """Return a trace of nodes with 1000 millicores, and pods given by arrival, end, millicores and priority."""
    arrival, end, cpu, priority = (np.array(column, np.int64) for column in zip(*pods, strict=True))
    unlimited = np.full(len(pods), -1)
    return Trace(
        name="world",
        nodes=tuple(f"node-{number}" for number in range(nodes)),
        cpu_capacity_milli=np.full(nodes, 1000),
        memory_capacity_bytes=np.full(nodes, 1 << 30),
        pods=tuple(f"pod-{number}" for number in range(len(pods))),
        owner_kinds=("Deployment",) * len(pods),
        owners=("web",) * len(pods),
        arrival_minute=arrival,
        end_minute=end,
        cpu_request_milli=cpu,
        memory_request_bytes=np.full(len(pods), 1 << 20),
        cpu_limit_milli=unlimited,
        memory_limit_bytes=unlimited,
        use=PodUse(np.concatenate([[0], np.cumsum(end - arrival)]), *(np.full(int((end - arrival).sum()), 0.5),) * 2),
        overcommit=(1.0, 1.0),
        warm_up_minutes=0,
        minutes=minutes,
        priority=priority,
    )


def starts(outcome: ReplayOutcome) -> list[tuple[int, int]]:
    """Return the pod and the minute of each placement."""
    return [(run.pod, run.start) for run in outcome.cluster.pod_runs]


def replay(trace: Trace, document: dict = IN_TREE) -> ReplayOutcome:
    return Replay(trace, standalone_policy("mine", document)).run()


def synthetic(minutes: int) -> Trace:
    whole = Synthetic(seed=3, nodes=12, minutes=120, warm_up_minutes=30).trace()
    return replace(whole, minutes=minutes, end_minute=np.minimum(whole.end_minute, minutes))


def test_in_tree_plugins_decide_as_the_plain_replay() -> None:
    """With kube-scheduler's plugins every pod has the node and the minute of the policy default, ties included."""
    trace, options = synthetic(60), ReplayOptions(seed=4)
    plain = Replay(trace, policies(trace)["default"], options).run()
    ours = Replay(trace, standalone_policy("mine", IN_TREE), options).run()
    runs, expected = (
        [(run.pod, run.node, run.start, run.end) for run in each.cluster.pod_runs] for each in (ours, plain)
    )
    assert runs == expected
    assert len(runs) > 150
    assert ours.unplaced == plain.unplaced


def test_the_default_profile_learns_and_scores_by_load() -> None:
    """With CongestionCost the choices differ from those by requests, and a replay can be repeated exactly."""
    trace = synthetic(40)
    documents = (default_document("mine"), default_document("mine"), IN_TREE)
    nodes = [[run.node for run in replay(trace, document).cluster.pod_runs] for document in documents]
    assert nodes[0] == nodes[1]
    assert nodes[0] != nodes[2]


def test_priorities_order_the_queue_and_preempt() -> None:
    """Of pods that arrive together the most important is first; a later one evicts, and the victim is placed again."""
    together = world((0, 6, 800, 0), (0, 6, 800, 5))
    assert starts(replay(together)) == [(1, 0)]
    later = world((0, 12, 800, 0), (2, 5, 800, 5))
    outcome = replay(later)
    assert starts(outcome) == [(0, 0), (1, 2), (0, 5)]
    assert outcome.displaced == 1
    disabled = {"postFilter": {"disabled": [{"name": "*"}]}}
    never = {**IN_TREE, "profiles": [{"schedulerName": "default-scheduler", "plugins": disabled}]}
    assert starts(replay(later, never)) == [(0, 0)]


@pytest.mark.parametrize(("gangs", "expected"), [(False, [(0, 0), (1, 1), (2, 4)]), (True, [(0, 0), (1, 4), (2, 4)])])
def test_the_pods_of_a_job_are_a_gang_with_coscheduling(*, gangs: bool, expected: list[tuple[int, int]]) -> None:
    """They start together once there is room for all; without it the first one starts at once."""
    trace = replace(
        world((0, 4, 300, 0), (1, 12, 500, 0), (1, 12, 500, 0)),
        owner_kinds=("Deployment", "Job", "Job"), owners=("web", "training", "training"),
    )  # fmt: skip
    queue = {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}
    plugins = {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}, "queueSort": queue} if gangs else {}
    document = {**IN_TREE, "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}]}
    assert sorted(starts(replay(trace, document))) == expected


def test_a_pod_in_backoff_is_passed_by_another() -> None:
    """Room that comes during a long backoff goes to a pod that arrives, and otherwise to the one that waited."""
    trace = world((0, 2, 800, 0), (1, 12, 800, 0), (2, 12, 800, 0))
    slow = {**IN_TREE, "podInitialBackoffSeconds": 90, "podMaxBackoffSeconds": 90}
    assert starts(replay(trace, slow)) == [(0, 0), (2, 2)]
    assert starts(replay(trace)) == [(0, 0), (1, 2)]


def test_sampling_looks_at_a_part_of_the_nodes() -> None:
    """With percentageOfNodesToScore the first search ends before the node that scores best, the largest one."""
    trace = world((0, 4, 200, 0), nodes=130, minutes=4)
    trace = replace(trace, cpu_capacity_milli=np.where(np.arange(130) == 120, 4000, 1000))
    best, sampled = (replay(trace, {**IN_TREE, **percent}) for percent in ({}, {"percentageOfNodesToScore": 10}))
    assert best.cluster.pod_runs[0].node == 120
    assert sampled.cluster.pod_runs[0].node < 100


def test_a_file_with_several_profiles_is_refused() -> None:
    """A policy has one profile."""
    several = {**IN_TREE, "profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]}
    with pytest.raises(ValueError, match=r"profiles: .* a, b"):
        standalone_policy("mine", several)


def test_the_command_replays_a_file_by_the_scheduler(tmp_path: Path) -> None:
    """NAME=standalone:FILE has priorities and preemption, which NAME=FILE has not; both are stored apart."""
    write_trace(world((0, 12, 800, 0), (2, 5, 800, 5)), tmp_path / "world")
    (tmp_path / "file.yaml").write_text(json.dumps(IN_TREE))
    folder, done = str(tmp_path / "world"), tmp_path / "done"
    command = ["simulate", "run", "--trace", folder, "-o", "json", "--resume-file", str(done)]
    displaced = []
    for source in ("", "standalone:", "standalone:"):
        answered = CliRunner().invoke(main, [*command, "--policy", f"mine={source}{tmp_path / 'file.yaml'}"])
        assert answered.exit_code == 0, answered.stderr
        displaced.append(json.loads(answered.stdout)["world"]["mine"]["displaced_pods"])
    assert displaced == [0, 1, 1]
    assert len(done.read_text().splitlines()) == 2


def teams() -> Trace:
    """Return a world in which blue asks for the half that red has borrowed."""
    trace = world((0, 10, 500, 0), (0, 8, 500, 0), (2, 6, 500, 0))
    return replace(trace, owners=("red/job", "red/job", "blue/job"), owner_kinds=("Job",) * 3)


def with_quotas() -> dict[str, object]:
    """Return a configuration with CapacityScheduling."""
    plugin = [{"name": "CapacityScheduling"}]
    plugins = {
        "preFilter": {"enabled": plugin},
        "postFilter": {"enabled": plugin, "disabled": [{"name": "DefaultPreemption"}]},
    }
    return {**IN_TREE, "profiles": [{"schedulerName": "teams", "plugins": plugins}]}


QUOTAS = [
    {"kind": "ElasticQuota", "metadata": {"namespace": team, "name": "quota"},
     "spec": {"min": {"cpu": "500m", "memory": "1Gi"}}}
    for team in ("red", "blue")
]  # fmt: skip


def test_a_team_takes_its_quota_back() -> None:
    """A pod's namespace is that of its owner; the borrower's pod goes back to the queue and runs again later."""
    alone = Replay(teams(), standalone_policy("teams", with_quotas())).run()
    shared = Replay(teams(), standalone_policy("teams", with_quotas(), QUOTAS)).run()
    assert (2, 2) not in starts(alone)
    assert (2, 2) in starts(shared)
    assert sum(pod in {0, 1} for pod, _ in starts(shared)) == 3


def compare(folder: Path, *arguments: object) -> Result:
    """Replay the teams with CapacityScheduling by the command."""
    (folder / "scheduler.yaml").write_text(json.dumps(with_quotas()))
    write_trace(teams(), folder / "teams")
    command = ["simulate", "compare", "--trace", folder / "teams", "--json", *arguments]
    return CliRunner().invoke(main, [str(each) for each in command])


@pytest.mark.parametrize(
    "text", ["\n---\n".join(map(json.dumps, QUOTAS)), json.dumps({"kind": "List", "items": QUOTAS})]
)
def test_the_command_takes_objects_from_a_file(tmp_path: Path, text: str) -> None:
    """Documents one after the other, or a list as kubectl writes it; stored replays are those with the same objects."""
    file = tmp_path / "quotas.yaml"
    file.write_text(text)
    policy = ("--policy", f"mine=standalone:{tmp_path / 'scheduler.yaml'}", "--resume-file", tmp_path / "stored")
    without, with_them = (compare(tmp_path, *policy, *objects) for objects in ((), ("--objects", file)))
    assert json.loads(without.stdout)["teams"]["mine"]["displaced_pods"] == 0
    assert json.loads(with_them.stdout)["teams"]["mine"]["displaced_pods"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod", "quotas.yaml: an object must have one of the kinds AppGroup, CSIDriver"),
        ("- 1", "got none"),
        ("kind: ElasticQuota\nmetadata: {namespace: a, name: q}\nspec: {min: [much]}", "elastic quota a/q: spec"),
        ("kind: [", "quotas.yaml: while parsing"),
        (None, "quotas.yaml cannot be read: No such file or directory"),
    ],
)
def test_wrong_objects_are_errors_that_name_the_file(tmp_path: Path, text: str | None, message: str) -> None:
    """The command ends with status 2."""
    file = tmp_path / "quotas.yaml"
    if text is not None:
        file.write_text(text)
    answered = compare(tmp_path, "--policy", f"mine=standalone:{tmp_path / 'scheduler.yaml'}", "--objects", file)
    assert answered.exit_code == 2
    assert message in answered.stderr


def test_objects_need_a_policy_that_reads_them(tmp_path: Path) -> None:
    """They have no effect on the others, which is an error."""
    answered = compare(tmp_path, "--policy", "default", "--objects", tmp_path / "quotas.yaml")
    assert answered.exit_code == 2
    assert "only policies of the form NAME=standalone:FILE read objects" in answered.stderr
