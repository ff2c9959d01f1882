"""Recommended requests: the rule, its floors and rounding, verdicts, reasons, and the waste."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kubernetes.workloads import Workload
from watcher.usage.recommend.recommendation import RULES, RecommendationRule, RequestVerdict, recommend
from watcher.usage.sources.known_autoscalers import KnownAutoscalers
from watcher.workload_table import ContainerKey, ContainerTable

MIB, GIB, DAY, NOW = 2.0**20, 2.0**30, 86400.0, 1.8e9
AMOUNTS = st.floats(0, 1e4)


def containers(*rows: dict[str, float], kind: str = "Deployment") -> ContainerTable:
    """Return a table of containers; by default 1 core and 1 GiB are requested, and the history has ten days."""
    full = [
        {"cpu": 1.0, "memory": GIB, "use": 0.2, "memory_use": 0.3 * GIB, "p90": 0.2, "peak": 0.3 * GIB,
         "days": 10.0, "age": 0.0, "pods": 1.0, "runs": 0.0, "cpu_limit": 0.0, "memory_limit": 0.0, "guaranteed": 0.0,
         "restarted": 0.0, "killed": 0.0, "killed_memory": 0.0, "throttled": 0.0, "waiting": np.nan,
         "pod_cpu": 0.0, "pod_memory": 0.0, **row}
        for row in rows
    ]  # fmt: skip
    column = {name: np.array([row[name] for row in full], np.float64) for name in full[0]}
    last_seen = NOW - column["age"]
    return ContainerTable(
        keys=[ContainerKey(Workload("shop", kind, f"web-{place}"), "main") for place in range(len(full))],
        requests=np.stack([column["cpu"], column["memory"]]),
        use=np.stack([column["use"], column["memory_use"]]),
        deviations=np.zeros((2, len(full))),
        quantiles=(0.5, 0.9),
        cpu_percentiles=np.stack([column["p90"] / 2, column["p90"]]),
        highest_memory=column["peak"],
        by_hour=np.zeros((2, len(full), 24)),
        first_seen=last_seen - column["days"] * DAY,
        last_seen=last_seen,
        revision_since=last_seen,
        pods=column["pods"],
        pod_minutes=column["pods"],
        runs=column["runs"],
        limits=np.stack([column["cpu_limit"], column["memory_limit"]]),
        roles=np.ones(len(full), np.uint8),
        is_guaranteed=column["guaranteed"] > 0,
        restarted_at=column["restarted"],
        killed_at=column["killed"],
        killed_memory=column["killed_memory"],
        strain=np.stack([column["throttled"], column["waiting"]]),
        has_pod_requests=np.stack([column["pod_cpu"], column["pod_memory"]]) > 0,
    )


@pytest.mark.parametrize(
    ("p90", "peak", "requests"),
    [(0.2, 300 * MIB, [0.23, 352 * MIB]), (0.001, MIB, [0.01, 100 * MIB])],  # 345 MiB, in steps of 16 MiB; the floors
)
def test_the_rule_is_the_90th_percentile_and_the_highest_memory_plus_15_percent(p90, peak, requests):
    """CPU is 1.15 times the percentile and memory 1.15 times the highest use, rounded up, with a floor for each."""
    advice = recommend(containers({"p90": p90, "peak": peak}))
    assert advice.requests[:, 0].tolist() == pytest.approx(requests)
    assert advice.verdicts[:, 0].tolist() == [RequestVerdict.LOWER, RequestVerdict.LOWER]
    assert advice.reasons[:, 0].tolist() == ["", ""]


def test_quantile_margin_and_floors_can_be_set():
    """Another rule takes another quantile, margin and floor; a quantile that the table lacks is refused."""
    rule = RecommendationRule(quantile=0.5, cpu_margin=0.5, memory_margin=0.5, min_memory_bytes=512 * MIB)
    advice = recommend(containers({"p90": 0.2, "peak": 100 * MIB}), rule)
    assert advice.requests[:, 0].tolist() == pytest.approx([0.15, 512 * MIB])
    assert recommend(containers({}), replace(rule, min_cpu_cores=0.8)).requests[0, 0] == pytest.approx(0.8)
    with pytest.raises(ValueError, match=r"quantile: .*0\.5, 0\.9, .*0\.7"):
        recommend(containers({}), RecommendationRule(quantile=0.7))


@pytest.mark.parametrize(
    ("request_", "peak", "wanted", "verdict"),
    [
        (64, 30, 64, "keep"),  # below the floor, and enough
        (33, 1, 33, "keep"),
        (104, 30, 104, "keep"),  # within 10 percent of the floor
        (128, 30, 100, "lower"),
        (32, 50, 58, "raise"),  # by use alone, not to the floor
        (64, 200, 232, "raise"),
    ],
)
def test_a_floor_raises_no_request(request_: float, peak: float, wanted: float, verdict: str):
    """The floor bounds what is lowered; a request below it is raised only by use, and then to what the use needs."""
    small = {"cpu": request_ / 10_000, "memory": request_ * MIB, "p90": peak / 10_000, "peak": peak * MIB}
    advice = recommend(containers(small))
    assert (advice.requests[1, 0], advice.verdicts[1, 0]) == (pytest.approx(wanted * MIB, rel=0.07), verdict)
    assert advice.verdicts[0, 0] == verdict
    assert advice.verdicts[1, 0] == "raise" or advice.requests[1, 0] <= request_ * MIB


def test_a_pod_with_a_request_as_a_whole_keeps_those_of_its_containers():
    """Containers share the request of their pod: theirs are neither lowered nor raised, for this resource only."""
    advice = recommend(containers({"pod_cpu": 1.0}, {"pod_memory": 1.0, "memory": 0.0}))
    assert advice.verdicts.T.tolist() == [["keep", "lower"], ["lower", "keep"]]
    assert advice.requests[:, 0].tolist()[0] == 1.0
    reason = "the pod has a request as a whole"
    assert advice.reasons.T.tolist() == [[reason, ""], ["", reason]]


@given(AMOUNTS.filter(lambda cores: cores > 0), st.floats(MIB, 1e13))
def test_amounts_are_rounded_up_a_little(cores: float, memory: float):
    """A recommendation is never below the rule's amount, and above it by 5 percent or 1m, by 6.25 percent or 4 MiB."""
    cpu, bytes_ = recommend(containers({"p90": cores, "peak": memory})).requests[:, 0].tolist()
    wanted_cpu, wanted_bytes = max(1.15 * cores, 0.01), max(1.15 * memory, 100 * MIB)
    assert wanted_cpu * (1 - 1e-8) <= cpu <= max(wanted_cpu * 1.05, wanted_cpu + 0.001) + 1e-9
    assert wanted_bytes * (1 - 1e-8) <= bytes_ <= wanted_bytes * 1.0625 + 4 * MIB
    assert round(cpu * 1000, 6).is_integer()
    assert (bytes_ / MIB).is_integer()


@pytest.mark.parametrize(
    ("request_", "verdict"),
    [(0.2, "raise"), (0.209, "raise"), (0.21, "keep"), (0.23, "keep"), (0.25, "keep"), (0.26, "lower")],
)
def test_a_request_within_10_percent_is_kept(request_: float, verdict: str):
    """For 230m, requests from 10 percent below to 10 percent above are kept."""
    assert recommend(containers({"p90": 0.2, "cpu": request_})).verdicts[0, 0] == verdict


def test_a_history_of_less_than_seven_days_lowers_nothing():
    """Before seven days the present request is recommended, with the reason; from then on the lower one."""
    advice = recommend(containers({"days": 6.9}, {"days": 7.0}))
    assert advice.requests[:, 0].tolist() == [1.0, GIB]
    assert advice.verdicts.T.tolist() == [["keep", "keep"], ["lower", "lower"]]
    assert advice.reasons.T.tolist() == [["history of 6.9 days, below 7"] * 2, ["", ""]]


def test_a_container_without_requests_has_a_recommendation_and_a_reason():
    """Without a request there is nothing to lower: the recommendation is shown, with the reason, and no waste."""
    advice = recommend(containers({"cpu": 0.0, "memory": 0.0}))
    assert advice.requests[0, 0] == pytest.approx(0.23)
    assert advice.verdicts[:, 0].tolist() == ["raise", "raise"]
    assert advice.reasons[:, 0].tolist() == ["no request is set"] * 2
    assert advice.wasted[:, 0].tolist() == [0, 0]


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_unmeasured_use_has_no_recommendation(value: float):
    """A resource without measurements has no amount and no verdict, and the reason says so; the other one has both."""
    advice = recommend(containers({"p90": value}))
    assert np.isnan([advice.requests[0, 0], advice.wasted[0, 0]]).all()
    assert (advice.verdicts[0, 0], advice.reasons[0, 0]) == (RequestVerdict.UNKNOWN, "the use of CPU is not known")
    assert (advice.verdicts[1, 0], advice.reasons[1, 0]) == (RequestVerdict.LOWER, "")


def test_waste_is_the_unused_request_of_all_running_pods():
    """Waste is request minus use, times pods; 0 if more is used, and for pods that ended before the newest rounds."""
    advice = recommend(containers({"pods": 5, "use": 0.2}, {"cpu": 0.1}, {"pods": 5, "age": 3600}))
    assert advice.wasted[0].tolist() == pytest.approx([4.0, 0.0, 0.0])
    assert advice.wasted[1].tolist() == pytest.approx([3.5 * GIB, 0.7 * GIB, 0.0])


def test_an_empty_table_has_no_recommendations():
    """A table without containers gives empty arrays."""
    table = containers({})
    cut = {"keys": [], "requests": table.requests[:, :0], "use": table.use[:, :0]}
    cut |= {"cpu_percentiles": table.cpu_percentiles[:, :0]}
    cut |= {"limits": table.limits[:, :0], "has_pod_requests": table.has_pod_requests[:, :0]}
    names = ("highest_memory", "killed_at", "killed_memory", "first_seen", "last_seen", "pods")
    cut |= {name: getattr(table, name)[:0] for name in names}
    assert recommend(replace(table, **cut)).requests.shape == (2, 0)


def test_the_rule_krr_is_the_95th_percentile():
    """The rule ``krr`` takes the 95th percentile of CPU unchanged, and memory as the default rule does."""
    table = containers({"p90": 0.2, "peak": 300 * MIB})
    table = replace(table, quantiles=(0.9, 0.95), cpu_percentiles=np.array([[0.2], [0.3]]))
    assert recommend(table, RULES["krr"]).requests[:, 0].tolist() == pytest.approx([0.3, 352 * MIB])


# -- blockers -----------------------------------------------------------------------------------------------------

PINNED = "QoS class Guaranteed with whole CPUs, which the static CPU manager pins"
BLOCKERS = {
    "throttled": ({"throttled": 0.12}, "throttled in 12% of the CPU periods of the last day", ""),
    "waiting": ({"waiting": 0.25}, "waiting for CPU in 25% of the last day", ""),
    "killed": ({"killed": NOW - 1.5 * DAY, "restarted": NOW - 1.5 * DAY, "killed_memory": 400 * MIB}, "",
               "killed for lack of memory 1.5 days ago"),
    "restarted": ({"restarted": NOW - 7200}, "restarted 2.0 hours ago", "restarted 2.0 hours ago"),
    "short history": ({"days": 3.2}, "history of 3.2 days, below 7", "history of 3.2 days, below 7"),
    "tied to the limit": ({"memory_limit": GIB}, "", "the request equals the limit"),
    "guaranteed": ({"guaranteed": 1.0, "cpu": 1.5, "memory_limit": GIB}, "QoS class Guaranteed",
                   "QoS class Guaranteed"),
    "pinned": ({"guaranteed": 1.0, "cpu": 2.0}, PINNED, PINNED),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKERS)
def test_a_blocker_keeps_the_request_and_is_the_reason(name: str):
    """Each blocker keeps the request of its resource, with a reason; the other resource is lowered."""
    row, *expected = BLOCKERS[name]
    advice = recommend(containers(row))
    assert advice.reasons[:, 0].tolist() == expected
    assert advice.verdicts[:, 0].tolist() == ["keep" if reason else "lower" for reason in expected]
    kept = advice.requests[:, 0] == [row.get("cpu", 1.0), GIB]
    assert kept.tolist() == [bool(reason) for reason in expected]


TOO_LOW = {"cpu": 0.1, "memory": 0.1 * GIB, "days": 0.1}


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ({"throttled": 0.04, "waiting": 0.09}, "lower"),
        ({"throttled": np.nan}, "lower"),
        ({"restarted": NOW - 15 * DAY, "killed": NOW - 15 * DAY, "killed_memory": 8 * GIB}, "lower"),
        ({"memory_limit": 2 * GIB, "cpu_limit": 1.0}, "lower"),
        (TOO_LOW, "raise"),
        ({**TOO_LOW, "guaranteed": 1.0, "throttled": 0.9, "restarted": NOW}, "raise"),
    ],
)
def test_what_is_small_old_or_unknown_blocks_nothing(row: dict[str, float], verdict: str):
    """Little strain, old restarts, and a limit above the request block nothing; nothing blocks a raise."""
    advice = recommend(containers(row))
    assert advice.verdicts[:, 0].tolist() == [verdict] * 2
    assert advice.reasons[:, 0].tolist() == ["", ""]


@pytest.mark.parametrize(("kind", "runs", "reason"), [
    ("CronJob", 9.0, "history of 9 runs, below 10"), ("Job", 0.0, "history of 0 runs, below 10"),
    ("CronJob", 10.0, ""), ("StatefulSet", 500.0, "history of 2.0 days, below 7"),
])  # fmt: skip
def test_the_history_of_jobs_is_counted_in_runs(kind: str, runs: float, reason: str):
    """Ten runs of a workload whose pods run to their end are enough, in any time; others need seven days."""
    advice = recommend(containers({"runs": runs, "days": 2.0}, kind=kind))
    assert advice.reasons[:, 0].tolist() == [reason, reason]


def test_autoscalers_are_reasons_of_their_resource():
    """An HPA on CPU is a reason for CPU only, a VPA for what it sets; several reasons are shown together."""
    workload = Workload("shop", "Deployment", "web-0")
    hpa = {(workload, "*", "cpu"): ("HPA web scales by 60 % of the request",)}
    vpa = {(workload, "*", "cpu"): ("VPA web sets the request",), (workload, "main", "cpu"): ()}
    assert recommend(containers({}), autoscaling=KnownAutoscalers(hpa, vpa)).reasons[:, 0].tolist() == [
        "HPA web scales by 60 % of the request", "",
    ]  # fmt: skip
    advice = recommend(
        containers({"days": 1.0}),
        autoscaling=KnownAutoscalers(hpa, {(workload, "*", "cpu"): vpa[workload, "*", "cpu"]}),
    )
    assert advice.reasons[0, 0] == (
        "history of 1.0 days, below 7; HPA web scales by 60 % of the request; VPA web sets the request"
    )


def test_a_kill_for_lack_of_memory_raises_the_recommendation():
    """Memory that the container needs after the kill counts as its highest memory, for 14 days."""
    row = {"killed_memory": 1.2 * GIB, "killed": NOW - DAY, "restarted": NOW - DAY}
    advice = recommend(containers(row, {**row, "killed": NOW - 15 * DAY, "restarted": NOW - 15 * DAY}))
    assert advice.verdicts[1].tolist() == ["raise", "lower"]
    assert 1.38 * GIB <= advice.requests[1, 0] <= 1.38 * GIB * 1.0625


def test_limits_keep_their_ratio_to_a_raised_request_and_stay_otherwise():
    """The limit of a raised request grows by the same factor, that of a lower one stays, and none stays none."""
    raised = {"cpu": 0.1, "memory": 0.1 * GIB, "cpu_limit": 0.2, "memory_limit": 0.1 * GIB}
    advice = recommend(containers(raised, {"cpu_limit": 4.0}))
    cpu, memory = advice.requests[:, 0]
    assert advice.limits[:, 0].tolist() == pytest.approx([2 * cpu, memory])
    assert advice.limits[0, 1] == 4.0
    assert np.isnan(advice.limits[1, 1])
