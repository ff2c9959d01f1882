"""Tests of what an assessment says about requests, about outcomes, and about the next steps."""

from dataclasses import replace

import numpy as np
import pytest

from runtime.kubernetes.workloads import Workload
from trimaran.assessment.assess import next_steps
from trimaran.assessment.model import Amounts, AssessmentProblem, Change, Consumer, Effect, HotNode, Outcome, Prices
from trimaran.assessment.outcomes import outcome
from trimaran.assessment.requests import consumers, without_requests
from trimaran.traces.trace import PodUse, Trace
from watcher.usage.sources.known_autoscalers import ALL_CONTAINERS, KnownAutoscalers

GIB = 2**30
DAY = 1440
NONE = KnownAutoscalers(unchecked=())


def trace(*pods: tuple[str, int, float, int, float]) -> Trace:
    """Return a trace of a day; a pod is its owner, its request in millicores, its use as a share of it, and memory."""
    owners = tuple(owner for owner, *_ in pods)
    count = len(pods)
    return Trace(
        name="world", nodes=("a",), cpu_capacity_milli=np.array([8000]), memory_capacity_bytes=np.array([16 * GIB]),
        pods=tuple(f"pod-{number}" for number in range(count)), owner_kinds=("Deployment",) * count, owners=owners,
        arrival_minute=np.zeros(count, np.int64), end_minute=np.full(count, DAY),
        cpu_request_milli=np.array([cpu for _, cpu, *_ in pods]),
        memory_request_bytes=np.array([memory for *_, memory, _ in pods]),
        cpu_limit_milli=np.full(count, -1), memory_limit_bytes=np.full(count, -1),
        use=PodUse(np.arange(count + 1) * DAY, np.repeat([share for *_, share, _, _ in pods], DAY),
                   np.repeat([share for *_, share in pods], DAY)),
        overcommit=(1.0, 1.0), warm_up_minutes=60, minutes=DAY,
    )  # fmt: skip


WASTEFUL = trace(("shop/web", 2000, 0.1, GIB, 0.9), ("shop/web", 2000, 0.1, GIB, 0.9), ("ml/job", 1000, 0.9, GIB, 0.9))


def test_what_is_requested_used_and_not_needed() -> None:
    """Two cores that use a fifth of a core each free most of what they request; a used request frees nothing."""
    everything, namespaces, workloads = consumers(WASTEFUL, None, NONE, Prices(core_hour=0.02))
    assert (everything.pods, everything.cpu.requested) == pytest.approx((3, 5))
    assert everything.cpu.used == pytest.approx(1.3)
    assert [each.name for each in namespaces] == ["shop", "ml"]
    web, job = workloads
    assert (web.name, web.pods, web.cpu.missing) == ("shop/Deployment/web", 2, 0)
    assert web.cpu.freed == pytest.approx(4 - 2 * 0.2 * 1.15, abs=0.1)
    assert web.monthly_cost == pytest.approx(web.cpu.freed * 0.02 * 730)
    assert job.cpu.freed == 0
    assert consumers(WASTEFUL, None, NONE, Prices())[0].monthly_cost is None


def test_a_request_below_the_use_is_too_low() -> None:
    """The amount that a recommended request adds is counted apart from what others free, and costs."""
    low = trace(("shop/low", 1000, 1.5, GIB, 0.9), ("shop/web", 2000, 0.1, GIB, 0.9))
    everything, (shop,), _ = consumers(low, None, NONE, Prices(core_hour=0.02))
    assert everything.cpu.missing == pytest.approx(1.5 * 1.15 - 1, abs=0.1)
    assert shop.monthly_cost == pytest.approx((shop.cpu.freed - shop.cpu.missing) * 0.02 * 730)


def test_a_scaled_workload_keeps_its_request() -> None:
    """An HPA that scales by the request's utilization would undo a lower request, so nothing is freed."""
    scaled = KnownAutoscalers({(Workload("shop", "Deployment", "web"), ALL_CONTAINERS, "cpu"): ("HPA web",)}, {}, ())
    assert consumers(WASTEFUL, None, scaled, Prices())[2][0].cpu.freed == 0


def test_pods_without_requests_request_nothing() -> None:
    """The smallest request to which a recording's use fits is no request; a real one of a millicore is as good as."""
    world = trace(("ml/bare", 1, 500.0, GIB, 0.5), ("ml/set", 500, 1.0, GIB, 0.5), ("ml/set", 500, 0.0, GIB, 0.0))
    assert without_requests(world).tolist() == [True, False, False]
    (space,) = consumers(world, None, NONE, Prices())[1]
    assert space.without_requests == pytest.approx(1 / 3)
    assert (space.cpu.requested, space.cpu.used) == pytest.approx((1.0, 1.0))


def test_a_trace_without_use_is_assessed() -> None:
    """Pods that never ran do not break the sums."""
    world = replace(WASTEFUL, use=PodUse(np.zeros(4, np.int64), np.zeros(0), np.zeros(0)))
    everything, _, _ = consumers(world, None, NONE, Prices())
    assert (everything.pods, everything.cpu.used) == (0, 0)


def seeds(*hot: float, waited: float = 0, overrun: float = 0) -> list[dict[str, float]]:
    """Return the measures of replays, one for each number of hot minutes."""
    return [
        {"hot_minutes_80": each, "waited_pod_minutes": waited, "memory_overrun_minutes": overrun,
         "cpu_requested_percent": 80.0, "moves": 0.0} for each in hot
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "effect"),
    [
        (seeds(500, 520, 510, 515), Effect.GAIN),
        (seeds(980, 990, 985, 990), Effect.NONE),
        (seeds(500, 1100, 600, 1000), Effect.NONE),
        (seeds(1300, 1310, 1305, 1300), Effect.HARM),
        (seeds(500, 520, 510, 515, waited=400), Effect.HARM),
        (seeds(500, 520, 510, 515, waited=200), Effect.GAIN),
        (seeds(500, 520, 510, 515, overrun=100), Effect.HARM),
    ],
)
def test_an_effect_is_beyond_chance(changed: list[dict[str, float]], effect: Effect) -> None:
    """A gain is beyond what seeds explain; longer waits or memory overruns are harm, however few hot minutes."""
    default = seeds(1000, 1020, 1010, 1005)
    found = outcome(Change.EXTENDER, default, changed, 500)
    assert found.effect is effect, found
    assert found.reason
    assert outcome(Change.NONE, default, default, 500).effect is None


def test_a_cluster_without_hot_minutes_has_no_effect() -> None:
    """Without hot minutes, before and after, nothing is gained."""
    assert outcome(Change.EXTENDER, seeds(0, 0), seeds(0, 0), 500).effect is Effect.NONE


def made(change: Change, effect: Effect | None) -> Outcome:
    return Outcome(change, effect, "", 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("effect", "words"), [(Effect.GAIN, "helm upgrade"), (Effect.HARM, "Do not"), (Effect.NONE, "little here")]
)
def test_the_next_step_follows_the_effect(effect: Effect, words: str) -> None:
    """A node that is hot now comes first, then problems, requests, and what placing by load would do."""
    everything = Consumer("all pods", 10, Amounts(10, 2, 5, 0), Amounts(0, 0, 0, 0), 0, None)
    problems = [AssessmentProblem("node-7", "is not measured", "look at it")]
    hot = [HotNode("node-3", 1, 0.5, 70, 95)]
    steps = list(next_steps(problems, hot, everything, [made(Change.EXTENDER, effect)]))
    assert [
        word in step for word, step in zip(("node-3", "node-7", "trimaran workloads", words), steps, strict=True)
    ] == [True] * 4
    assert not list(next_steps([], [], replace(everything, cpu=Amounts(10, 9, 0, 0)), []))
