"""State of a scheduler, as ``trimaran doctor --scheduler`` reads it."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from support.servers import Service, reply, serving
from support.waiting import wait_until

from client import connect
from runtime.kubernetes.constraints import Taint
from runtime.kubernetes.objects import Node, Pod
from scoring import FallbackPolicy
from trimaran.cli.main import main
from trimaran.scheduler.profiles.configuration import default_document, read_setup
from trimaran.scheduler.service.event_queue import EventQueue
from trimaran.scheduler.service.examination import _steps
from trimaran.scheduler.service.load_reader import LoadReader
from trimaran.scheduler.service.status import LiveStatus

ROOT = Path(__file__).parents[3]


class Running:
    """A scheduler with two nodes, whose thread only answers questions.

    Attributes:
        feed: view of the cluster, as :class:`trimaran.scheduler.service.event_queue.ClusterFeed` has it.
        load: source of the load.
    """

    def __init__(self) -> None:
        self.event_queue, self.scheduler = EventQueue(), read_setup(default_document("ours")).scheduler(seed=0)
        self.feed = SimpleNamespace(is_synced=True, age_seconds=0.5, failures=(), unreadable={}, unknown_nodes={})
        self.load, self.leads, self.mode, self.stop = SimpleNamespace(why_unknown=""), True, "bind", False
        self.scheduler.replace_nodes([Node("a", taints=(Taint("dedicated", "ours"),)), Node("b")], 0.0)
        self.thread = threading.Thread(target=self._answer)
        self.thread.start()

    def put(self, name: str, on: str, *, owner: str = "ours", selects: bool = True) -> None:
        selector = {"dedicated": "ours"} if selects else {}
        bound = Pod(name, uid=name, node_name=on, scheduler_name=owner, node_selector=selector)
        self.scheduler.put_pod(bound, 0.0)

    def status(self) -> LiveStatus:
        feed: Any = self.feed
        load: Any = self.load
        return LiveStatus(
            self.mode, ["ours"], self.event_queue, feed, load, lambda: self.leads, lambda: "", ask_seconds=1.0
        )

    def doctor(self) -> tuple[int, dict[str, dict[str, Any]]]:
        """Return exit status and steps of the command for this state."""
        status = self.status()
        with serving(lambda handler: reply(handler, status.document())) as server:
            result = CliRunner().invoke(main, ["doctor", "--scheduler", server.url, "-o", "json"])
        return result.exit_code, {each["step"].removeprefix("scheduler: "): each for each in json.loads(result.output)}

    def _answer(self) -> None:
        while not self.stop:
            change = self.event_queue.take(0.01)
            if change is not None:
                change(self.scheduler, 0.0)


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.stop = True
    running.thread.join()


def test_nodes_of_its_own_pass(running: Running) -> None:
    """A tainted node whose pods select it is the scheduler's own; pods elsewhere do not matter."""
    running.put("web", "a")
    running.put("other", "b", owner="default-scheduler")
    status, steps = running.doctor()
    assert (status, {step["ok"] for step in steps.values()}) == (0, {True})
    assert steps["ready"]["message"] == "mode bind, for the pods of ours"
    assert steps["nodes"]["message"] == "1 nodes have pods of this scheduler only, and a NoSchedule taint"


@pytest.mark.parametrize(
    ("problem", "step", "words"),
    [
        ("shared", "nodes", "a NoSchedule taint that only its pods tolerate"), ("open", "nodes", "(b)"),
        ("anywhere", "nodes", "select the label"), ("rejecting", "kubelets", "kubelets rejected pods: a"),
        ("load", "load", "no metrics"), ("api", "cluster", "Connection refused"),
        ("unknown", "free CPU and memory", "a: pod t/odd cannot be read"), ("quota", "quotas", "spec.max.cpu: not a"),
    ],
)  # fmt: skip
def test_each_problem_fails_its_step(running: Running, problem: str, step: str, words: str) -> None:
    """Shared, untainted and unknown nodes, pods without a selector, rejections, odd quotas, no load, no API server."""
    running.put("web", "b" if problem == "open" else "a", selects=problem != "anywhere")
    if problem == "shared":
        running.put("other", "a", owner="default-scheduler")
    elif problem == "rejecting":
        running.scheduler.reject_pod("a", 0.0)
    elif problem == "load":
        running.load.why_unknown = "no metrics"
    elif problem == "unknown":
        running.feed.unknown_nodes = {"a": "pod t/odd cannot be read"}
    elif problem == "quota":
        quota = {"metadata": {"namespace": "t", "name": "q"}, "spec": {"max": {"cpu": "1e1.5"}}}
        running.scheduler.put_other("ElasticQuota", quota, 0.0)
    elif problem == "api":
        running.feed.failures = ("Connection refused",)
    status, steps = running.doctor()
    assert status == 1
    assert [name for name, each in steps.items() if not each["ok"]] == [step]
    assert words in steps[step]["message"]


def test_a_scheduling_thread_that_does_not_answer_is_a_problem(running: Running) -> None:
    """The state is served all the same, and says so."""
    running.stop = True
    running.thread.join()
    status, steps = running.doctor()
    assert (status, steps["ready"]["ok"]) == (1, False)
    assert "scheduling thread" in steps["ready"]["message"]


@pytest.mark.parametrize(
    ("state", "ok", "message"),
    [
        ({"lease_holder": "pod-2", "reason": ""}, True, "another replica (pod-2) places pods; check that replica"),
        ({"lease_holder": "", "reason": ""}, False, "no replica holds the Lease"),
        ({"reason": ""}, True, "another replica places pods; check that replica"),  # of an older scheduler
    ],
)
def test_a_replica_that_waits_names_the_one_that_places(state: dict[str, Any], ok: bool, message: str) -> None:
    """Only a known holder of the Lease is another replica."""
    *_, check = _steps({"schedulers": ["ours"], "mode": "bind", "leads": False, **state})
    assert (check.ok, check.message.startswith(message)) == (ok, True)


def test_a_lease_that_cannot_be_acquired_fails() -> None:
    """Doctor has the reason of /readyz, and names no other replica."""
    state = {"schedulers": ["ours"], "mode": "bind", "leads": False, "lease_holder": "", "reason": "the Lease cannot"}
    assert [(check.ok, check.message) for check in _steps(state)] == [(False, "the Lease cannot")]


def test_a_file_without_a_load_plugin_is_not_scored_by_load(running: Running) -> None:
    """Doctor names the profiles that no score plugin lets read the load, which no watcher could mend."""
    running.load.why_unknown = "no metrics"
    state = {**running.status().document(), "without_load": ["ours"]}
    (step,) = [check for check in _steps(state) if check.step == "scheduler: load"]
    assert step.ok
    assert step.message.startswith("no score plugin")
    (step,) = [check for check in _steps({**state, "schedulers": ["a", "ours"]}) if check.step == "scheduler: load"]
    assert not step.ok
    gangs = re.search("```yaml\n(.*?)```", (ROOT / "docs/gangs.md").read_text(), re.DOTALL)
    assert gangs
    scheduler = read_setup(yaml.safe_load(gangs[1])).scheduler(seed=0)
    assert [profile.reads_load for profile in scheduler.profiles.values()] == [True]


def test_a_watcher_of_other_nodes_is_a_problem(running: Running, watch: Callable[..., Service]) -> None:
    """The load is not known where the watcher measures no node of the cluster."""
    watcher = watch("--provider", "Fake")
    watcher.wait_for("/watcher")
    with closing(LoadReader(connect(watcher.url), 60, 0, FallbackPolicy())) as reader:
        reader.start()

        def why() -> str:
            reader.update(running.scheduler)
            return reader.why_unknown

        wait_until(lambda: "none of the 2 nodes of the cluster, such as a, but 3 others" in why(), "it was read")
        running.scheduler.replace_nodes([Node("Node-1"), Node("b")], 0.0)
        reader._judged_at = float("-inf")
        assert why() == ""


def test_a_waiting_replica_and_shadow_have_no_nodes(running: Running) -> None:
    """A replica without the Lease knows nothing of the cluster; in shadow nothing is placed."""
    running.feed.is_synced = running.leads = False
    status, steps = running.doctor()
    assert (status, list(steps)[-1]) == (0, "Lease")
    running.feed.is_synced = running.leads = True
    running.mode = "shadow"
    status, steps = running.doctor()
    assert (status, list(steps)[-1]) == (0, "load")
