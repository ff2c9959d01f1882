"""Live learning of workloads: from rounds of pod use to the learner, and its state in the store, also after kill -9."""

import random
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from support.killed import integrity, run_and_kill
from support.servers import wait_until
from support.workload_rounds import GIB, START, STEP, measured

from runtime.kubernetes.workloads import ContainerRole
from watcher.store import Store
from watcher.usage.learn.learner_service import LearnerService
from watcher.usage.learn.use_round import use_round
from watcher.usage.recommend.recommendation import recommend
from watcher.usage.sources.known_autoscalers import KnownAutoscalers
from watcher.usage.sources.pods import ContainerResources, ContainerRestart, PodKey, PodTemplate, RunningPod, Workload
from watcher.usage.store import UsageTables
from watcher.windows.container_use import ContainerUse

WEB = Workload("shop", "Deployment", "web")
TEMPLATE = PodTemplate(WEB, "5d4f", (ContainerResources("main", 500, GIB), ContainerResources("proxy", 100)))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


def use_of(*rows, timestamp=START):
    """Return the use of containers: pod, container, cores and bytes."""
    pods, containers, cores, sizes = zip(*rows, strict=True) if rows else ((),) * 4
    names = ["shop"] * len(rows)
    return ContainerUse(timestamp, 300.0, names, pods, containers, np.array(cores), np.array(sizes, np.float64))


def states(learning):
    """Return what can be compared of a learner: names and all statistics as bytes."""
    containers = learning.containers()
    return containers.keys, [np.asarray(getattr(containers, each)).tobytes() for each in ("use", "cpu_percentiles")]


def test_containers_are_found_by_their_pods():
    """Each container has its template's workload, requests and revision; one that may be unnamed has no request."""
    pods = {PodKey("shop", "web-1"): RunningPod(TEMPLATE, START - 1000.0)}
    use = use_of(("web-1", "main", 0.25, GIB), ("web-1", "proxy", 0.05, 1e6), ("web-1", "other", 0.01, 1e6))
    found = use_round(use, pods, 0)
    assert [(key.workload, key.container) for key in found.keys] == [(WEB, each) for each in use.containers]
    assert found.container.tolist() == [0, 1, 2]
    assert found.requests.tolist() == [[0.5, 0.1, 0.0], [GIB, 0.0, 0.0]]
    assert len(set(found.revision.tolist())) == 1
    assert found.revision[0] != 0
    assert found.measured_seconds.tolist() == [300.0] * 3


@pytest.mark.parametrize("name", ["debugger-x7k2p", "shell"])
def test_an_ephemeral_container_is_not_learned(name):
    """A container that a complete template does not name was added to one pod: no other pod has it."""
    pods = {PodKey("shop", "web-1"): RunningPod(replace(TEMPLATE, is_complete=True), START - 1000.0)}
    use = use_of(("web-1", "main", 0.25, GIB), ("web-1", name, 3.0, GIB), ("web-1", "proxy", 0.05, 1e6))
    found = use_round(use, pods, 0)
    assert [key.container for key in found.keys] == ["main", "proxy"]
    assert found.container.tolist() == [0, -1, 1]


def test_containers_of_unknown_pods_are_left_out():
    """A pod that ended, or that is not known yet, is not learned; nor is a pod that starts after the window."""
    late = {PodKey("shop", "late"): RunningPod(TEMPLATE, START + 1.0)}
    use = use_of(("gone", "main", 0.25, GIB), ("late", "main", 0.25, GIB))
    learning = LearnerService(Store(None), "x")
    learning.observe(use, late)
    assert learning.table().workloads == ()
    found = use_round(use, late, 0)
    assert found.container.tolist() == [-1, 0]
    assert found.measured_seconds.tolist() == [300.0, -1.0]


@pytest.mark.parametrize(
    ("since", "seconds"),
    [(0, 300), (START - 300, 300), (START - 60, 60), (START - 3600, 300), (START + 900, 300), (START, None)],
)
def test_a_round_covers_the_time_since_the_one_before(since, seconds):
    """Rounds do not overlap, a gap is not filled, a clock that was set back counts a whole window, a repeat nothing."""
    pods = {PodKey("shop", "young"): RunningPod(TEMPLATE, START - 30.0)}
    found = use_round(use_of(("young", "main", 0.25, GIB)), pods, since)
    assert (found and found.seconds) == seconds
    assert found is None or found.measured_seconds.tolist() == [30.0]


def test_revisions_have_the_same_numbers_in_all_runs():
    """Stored numbers of revisions stay valid after an update of the watcher; an unknown revision is 0."""
    for revision, number in (("", 0), ("5d4f", 0xEEEA79ED74AB8525 - 2**64), ("r-1", 0x7D99A80E76BBAD0E)):
        pods = {PodKey("shop", "web-1"): RunningPod(replace(TEMPLATE, revision=revision), 1.0)}
        assert use_round(use_of(("web-1", "main", 0.25, GIB)), pods, 0).revision.tolist() == [number]


def test_days_are_to_be_filled_from_the_first_round_with_use_on():
    """A round without use begins nothing; later rounds leave the days as they are."""
    learning, pods = LearnerService(Store(None), "x", backfill_days=2), {PodKey("shop", "a"): RunningPod(TEMPLATE, 1.0)}
    learning.observe(use_of(), pods)
    assert learning.unfilled() == ([], 0.0)
    for later in (300, 86700):
        learning.observe(use_of(("a", "main", 0.25, GIB), timestamp=START + later), pods)
        assert learning.unfilled() == ([START // 86400, START // 86400 - 1], START)


def test_a_clock_that_is_set_back_again_is_reported_once(caplog):
    """The first refused round is a warning; the next ones are not."""
    learning, pods = LearnerService(Store(None), "x"), {PodKey("shop", "web-1"): RunningPod(TEMPLATE, None)}
    for at, warnings in ((0, 0), (5 * 86400, 0), (0, 0), (5 * 86400, 0), (300, 1), (600, 1)):
        learning.observe(use_of(("web-1", "main", 0.25, GIB), timestamp=START + at), pods)
        assert caplog.text.count("the clock of its source was set back again") == warnings


def test_a_restarted_watcher_continues(path):
    """A learner's state survives a restart, bit for bit, and the next rounds are learned as without the restart."""
    store, running = Store(path), LearnerService(Store(None), "x")
    for number in range(6):
        learning = LearnerService(store, "x")
        learning.observe(*measured(number))
        running.observe(*measured(number))
        assert states(learning) == states(running)
        store.close()
        store = Store(path)
    assert len(UsageTables(store, "x").load_state()) == 5  # the present part, the totals, and three past days
    store.close()


def test_a_store_without_a_file_keeps_nothing():
    """In memory the state is not stored, as nothing could read it later."""
    store = Store(None)
    learning = LearnerService(store, "x")
    learning.observe(*measured(0))
    assert UsageTables(store, "x").load_state() == {}
    assert len(learning.table()) > 10
    store.close()


def test_another_origin_begins_to_learn(path):
    """A source that reads another cluster does not get the workloads of the one before, whose state stays."""
    for origin, rounds in (("http://east", 1), ("http://west", 2), ("http://east", 2)):
        store = Store(path, origins={"x": origin})
        learning = LearnerService(store, "x")
        assert bool(learning.table().workloads) is (rounds == 2 and origin == "http://east")
        learning.observe(*measured(rounds))
        store.close()


def test_an_unreadable_state_is_reported(path, caplog):
    """With a damaged state learning begins from nothing, with a warning, and the next round replaces it."""
    store = Store(path)
    LearnerService(store, "x").observe(*measured(0))
    store.close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("update workload_state set body = x'00'")
    connection.close()
    store = Store(path)
    learning = LearnerService(store, "x")
    assert learning.table().workloads == ()
    assert caplog.text.count("the stored use of workloads is unreadable") == 1
    learning.observe(*measured(1))
    assert states(LearnerService(store, "x")) == states(learning)
    store.close()


def test_a_watcher_learns_in_the_background(watch, path):
    """A running service learns from its rounds of pod use, and its store has what was learned."""
    service = watch("--provider", "Fake", store=path, TRIMARAN_FAKE__PODS="40")
    service.wait_for("/watcher/node-1")
    wait_until(lambda: "trimaran_pod_use_pods 40.0" in service.get("/metrics").text, "a round was learned")
    service.terminate()
    store = Store(path)
    learned = LearnerService(store, "Fake").table()
    assert {workload.name for workload in learned.workloads} == {f"app-{number}" for number in range(1, 9)}
    assert learned.pods.tolist() == [5.0] * 8
    assert (learned.use[0] > 0).all()
    store.close()


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.workload_rounds import measured
from watcher.store import Store
from watcher.usage.learn.learner_service import LearnerService

learning = LearnerService(Store(Path({path!r})), "x")
for number in range({first}, 10**5):
    learning.observe(*measured(number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_writes(path, times):
    """After kill -9 the state is that of whole rounds, at least all committed ones, and equal to an unbroken run."""
    random_, unbroken, next_round = random.Random(35), LearnerService(Store(None), "x"), 0
    for _ in range(times):
        committed = run_and_kill(WRITER, path, random_, lines=20, first=next_round)
        assert integrity(path) == "ok"
        store = Store(path)
        learning = LearnerService(store, "x")
        last = round((learning.table().timestamp - START) / STEP)
        assert last >= committed
        for number in range(next_round, last + 1):
            unbroken.observe(*measured(number))
        assert states(learning) == states(unbroken)
        next_round = last + 1
        store.close()
    assert store.set_aside is None


def test_state_of_containers_is_read_from_their_pods():
    """Limits, parts, the QoS class, and the newest restart and kill of a container come from templates and pods."""
    template = PodTemplate(
        WEB,
        "5d4f",
        (
            ContainerResources("main", 500, GIB, 1000, GIB, ContainerRole.CONTAINER),
            ContainerResources("mesh", role=ContainerRole.SIDECAR),
        ),
        ("setup",),
        is_guaranteed=True,
    )
    restarts = (
        (ContainerRestart("main", START - 100.0, True),),
        (ContainerRestart("main", START - 50.0, False), ContainerRestart("mesh", START + 99.0, False)),
    )
    pods = {
        PodKey("shop", f"web-{n}"): RunningPod(template, START - 1000.0, restarts=each)
        for n, each in enumerate(restarts)
    }
    facts = use_round(use_of(("web-0", "main", 0.25, GIB), ("web-0", "setup", 0.1, GIB)), pods, 0).facts
    assert facts.limits.tolist() == [[1.0, 0.0, 0.0], [GIB, 0.0, 0.0]]
    assert facts.roles.tolist() == [ContainerRole.CONTAINER, ContainerRole.SIDECAR, ContainerRole.INIT]
    assert facts.is_guaranteed.tolist() == [True] * 3
    assert facts.restarted_at.tolist() == [START - 50.0, START, 0.0]  # not in the future
    assert (facts.killed_at.tolist(), facts.killed_requests.tolist()) == ([START - 100.0, 0, 0], [GIB, 0, 0])


LIMITED = ContainerResources("main", 500, GIB, 1000, GIB, ContainerRole.CONTAINER)


def test_a_kill_without_a_limit_is_for_the_lack_of_memory_of_the_node():
    """Only a limit of the container or of its pod is reached by the container itself; the restart stays known."""
    free, pod_limit = LIMITED._replace(memory_limit_bytes=None), ContainerResources("", None, None, None, 2 * GIB)
    templates = {
        "limited": (LIMITED, None), "free": (free, None), "whole": (free, pod_limit),
        "cpu": (free, ContainerResources("", 1000, None, 1000, None)),
    }  # fmt: skip
    restarts = (ContainerRestart("main", START - 100.0, True),)
    pods = {
        PodKey("shop", name): RunningPod(
            PodTemplate(Workload("shop", "Deployment", name), "", (each,), pod=pod), 1.0, restarts=restarts
        )
        for name, (each, pod) in templates.items()
    }
    found = use_round(use_of(("limited", "main", 0.25, GIB)), pods, 0)
    by_name = {key.workload.name: place for place, key in enumerate(found.keys)}
    facts = found.facts
    assert {name: facts.killed_at[place] > 0 for name, place in by_name.items()} == {
        "limited": True, "free": False, "whole": True, "cpu": False,
    }  # fmt: skip
    assert (facts.restarted_at == START - 100.0).all()
    assert facts.killed_limits[by_name["limited"]] == GIB
    assert facts.has_pod_requests[:, by_name["cpu"]].tolist() == [True, False]
    assert facts.pods.tolist() == [1.0] * 4


@pytest.mark.parametrize("reverse", [False, True])
def test_limits_are_those_of_most_pods_of_the_newest_revision(reverse):
    """After a resize of one pod, or during a rollout, facts are of the template that most new pods have."""
    new = PodTemplate(WEB, "b", (LIMITED,))
    resized = replace(new, containers=(LIMITED._replace(cpu_request_milli=900, memory_limit_bytes=4 * GIB),))
    old = PodTemplate(WEB, "a", (LIMITED._replace(memory_limit_bytes=8 * GIB),), is_guaranteed=True)
    drawn = [(new, 20.0), (new, 21.0), (resized, 22.0), (old, 5.0), (old, 6.0), (old, 7.0), (old, 8.0)]
    pods = {PodKey("shop", f"w-{n}"): RunningPod(each, start) for n, (each, start) in enumerate(drawn)}
    rows = [(key.name, "main", 0.1, GIB) for key in pods]
    found = use_round(use_of(*(rows[::-1] if reverse else rows)), pods, 0).facts
    assert found.limits[:, 0].tolist() == [1.0, GIB]
    assert found.requests[:, 0].tolist() == [0.5, GIB]
    assert (found.is_guaranteed[0], found.pods[0]) == (False, 7.0)
    tied = use_of(*(rows[2:0:-1] if reverse else rows[1:3]))
    found = use_round(tied, dict(list(pods.items())[1:3]), 0).facts
    assert found.limits[:, 0].tolist() == [1.0, 4 * GIB]  # of equally frequent ones that of the youngest pod


def test_containers_that_were_never_measured_are_listed_with_the_reason():
    """A join with the measured use drops no running pod in silence: each unknown container is listed once."""
    cases = {
        "ended": (START - 7000.0, (ContainerRestart("main", START - 120.0, False),)),
        "killed": (START - 7000.0, (ContainerRestart("main", START - 180.0, True),)),
        "hours": (START - 9000.0, (ContainerRestart("main", START - 7200.0, False),)),
        "recent": (START - 899.0, ()), "older": (START - 900.0, ()),
        "young": (START - 240.0, ()), "unknown": (None, None), "silent": (START - 7000.0, ()),
        "looping": (START - 7000.0, (ContainerRestart("main", START - 60.0, True),)),
    }  # fmt: skip
    free = ContainerResources("main", 500)
    pods = {
        PodKey("shop", f"{name}-{n}"): RunningPod(
            PodTemplate(Workload("shop", "Job", name), "", (LIMITED if name == "looping" else free,), ("setup",)),
            start and start - 3000 * n, restarts=restarts,
        )
        for name, (start, restarts) in cases.items()
        for n in range(2)
    }  # fmt: skip
    pods[PodKey("shop", "web-1")] = RunningPod(TEMPLATE, START - 1000.0, restarts=())
    learning = LearnerService(Store(None), "x")
    learning.observe(use_of(("web-1", "main", 0.25, GIB), ("gone", "main", 0.1, GIB)), pods)
    assert {(each.workload.name, each.container, each.pods): each.reason for each in learning.unmeasured} == {
        ("ended", "main", 2): "it ended 2 minutes ago, before it was measured",
        ("killed", "main", 2): "it was killed for lack of memory of its node 3 minutes ago, before it was measured",
        ("hours", "main", 2): "it ended 2 hours ago, before it was measured",
        ("recent", "main", 2): "its pod started 15 minutes ago",
        ("older", "main", 2): "the source of the use has no measurement of it: it does not run, or is not scraped",
        ("young", "main", 2): "its pod started 4 minutes ago",
        ("unknown", "main", 2): "its start is not known",
        ("silent", "main", 2): "the source of the use has no measurement of it: it does not run, or is not scraped",
        ("web", "proxy", 1): "the source of the use has no measurement of it: it does not run, or is not scraped",
    }
    assert {each.name for each in learning.table().workloads} == {"web", "looping"}  # by the rule for killed containers


@pytest.mark.parametrize("rows", [[], [("looping-0", "main", np.nan, np.nan)], [("gone", "main", 0.1, GIB)]])
def test_a_killed_container_is_known_in_a_round_that_measures_no_other(rows):
    """The rule for killed containers holds where every pod is killed at its start, and nothing is measured."""
    template = PodTemplate(Workload("shop", "StatefulSet", "looping"), "", (LIMITED,))
    pods = {PodKey("shop", "looping-0"): RunningPod(
        template, START - 7000.0, restarts=(ContainerRestart("main", START - 60.0, True),)
    )}  # fmt: skip
    learning = LearnerService(Store(None), "x")
    learning.observe(use_of(*rows), pods)
    assert learning.unmeasured == ()
    table = learning.containers()
    assert [key.workload.name for key in table.keys] == ["looping"]
    assert (table.requests[:, 0].tolist(), table.pods[0]) == ([0.5, GIB], 1.0)
    assert recommend(table).verdicts[:, 0].tolist() == ["", "raise"]
    assert len(learning.totals().times) == 0  # no use was measured


def test_a_killed_pod_that_does_not_start_again_is_known():
    """A Job's pod that was killed and has failed raises its container's request, whether it was measured or not."""
    job = PodTemplate(Workload("shop", "CronJob", "nightly"), "", (LIMITED,))
    killed = RunningPod(job, START - 7000.0, restarts=(ContainerRestart("main", START - 60.0, True),))
    learning = LearnerService(Store(None), "x")
    learning.note(KnownAutoscalers(), [killed])
    learning.observe(use_of(("web-1", "main", 0.25, GIB)), {PodKey("shop", "web-1"): RunningPod(TEMPLATE, START)})
    table = learning.containers()
    place = [key.workload.name for key in table.keys].index("nightly")
    assert (table.requests[:, place].tolist(), table.pods[place]) == ([0.5, GIB], 0.0)
    assert table.first_seen[place] == table.last_seen[place] == START - 60.0
    assert recommend(table).verdicts[:, place].tolist() == ["", "raise"]
    measured = LearnerService(Store(None), "x")
    measured.observe(
        use_of(("nightly-1", "main", 0.25, GIB / 2)), {PodKey("shop", "nightly-1"): RunningPod(job, START)}
    )
    assert not measured.containers().killed_at.any()
    measured.note(KnownAutoscalers(), [killed])
    measured.observe(use_of(timestamp=START + 300), {})
    assert measured.containers().killed_at.tolist() == [START - 60.0]


def test_what_a_round_could_not_check_is_known():
    """Before the first round nothing is checked; then the source of the use, of pods and of autoscalers each say so."""
    learning = LearnerService(Store(None), "x")
    assert learning.unchecked == ("throttling, restarts and autoscalers (no round is complete since the start)",)
    use, pods = measured(0)
    learning.note(KnownAutoscalers(unchecked=("HPA (refused)",)))
    learning.observe(use, pods)
    assert learning.unchecked == (
        "throttling of CPU: only Prometheus knows it", "waiting for CPU (PSI): only Prometheus knows it",
        "restarts and OOM kills (the pods come from kube-state-metrics)", "HPA (refused)",
    )  # fmt: skip
    known = {key: pod._replace(restarts=()) for key, pod in pods.items()}
    learning.note(KnownAutoscalers(unchecked=()))
    one_unknown = {**known, next(iter(pods)): next(iter(pods.values()))}
    learning.observe(replace(use, timestamp=use.timestamp + 60, unchecked=()), one_unknown)
    assert learning.unchecked == ("restarts and OOM kills (the pods come from kube-state-metrics)",)
    learning.observe(replace(use, timestamp=use.timestamp + 300, unchecked=()), known)
    assert learning.unchecked == ()
