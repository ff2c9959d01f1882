"""Recommended requests: the rule, its floors and rounding, verdicts, reasons, and the waste."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kubernetes.workloads import Workload
from watcher.workload_table import ContainerKey, ContainerTable
from watcher.workloads.recommendation import RecommendationRule, RequestVerdict, recommend

MIB, GIB, DAY, NOW = 2.0**20, 2.0**30, 86400.0, 1.8e9
AMOUNTS = st.floats(0, 1e4)


def containers(*rows: dict[str, float]) -> ContainerTable:
    """Return a table of containers; by default 1 core and 1 GiB are requested, and the history has ten days."""
    full = [
        {"cpu": 1.0, "memory": GIB, "use": 0.2, "memory_use": 0.3 * GIB, "p90": 0.2, "peak": 0.3 * GIB,
         "days": 10.0, "age": 0.0, "pods": 1.0, **row}
        for row in rows
    ]  # fmt: skip
    column = {name: np.array([row[name] for row in full], np.float64) for name in full[0]}
    last_seen = NOW - column["age"]
    return ContainerTable(
        keys=[ContainerKey(Workload("shop", "Deployment", f"web-{place}"), "main") for place in range(len(full))],
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
    )


def test_the_rule_is_the_90th_percentile_and_the_highest_memory_plus_15_percent():
    """CPU is 1.15 times the percentile and memory 1.15 times the highest use, rounded up; both are lowered."""
    advice = recommend(containers({"p90": 0.2, "peak": 300 * MIB}))
    assert advice.requests[:, 0].tolist() == pytest.approx([0.23, 352 * MIB])  # 345 MiB, in steps of 16 MiB
    assert advice.verdicts[:, 0].tolist() == [RequestVerdict.LOWER, RequestVerdict.LOWER]
    assert advice.reasons[:, 0].tolist() == ["", ""]


def test_quantile_margin_and_floors_can_be_set():
    """Another rule takes another quantile, margin and floor; a quantile that the table lacks is refused."""
    rule = RecommendationRule(quantile=0.5, margin=0.5, min_memory_bytes=512 * MIB)
    advice = recommend(containers({"p90": 0.2, "peak": 100 * MIB}), rule)
    assert advice.requests[:, 0].tolist() == pytest.approx([0.15, 512 * MIB])
    assert recommend(containers({}), replace(rule, min_cpu_cores=0.8)).requests[0, 0] == pytest.approx(0.8)
    with pytest.raises(ValueError, match=r"quantile: must be one of 0\.5, 0\.9, not 0\.7"):
        recommend(containers({}), RecommendationRule(quantile=0.7))


def test_no_recommendation_is_below_the_floors():
    """A container that uses next to nothing gets 10m and 100Mi."""
    advice = recommend(containers({"p90": 0.001, "peak": MIB}))
    assert advice.requests[:, 0].tolist() == pytest.approx([0.01, 100 * MIB])


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


def test_a_short_history_still_raises():
    """Use above the request is a raise from the first day on, without a reason against it."""
    advice = recommend(containers({"days": 0.1, "cpu": 0.05, "memory": 200 * MIB}))
    assert advice.verdicts[:, 0].tolist() == ["raise", "raise"]
    assert advice.reasons[:, 0].tolist() == ["", ""]


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
    cut |= {name: getattr(table, name)[:0] for name in ("highest_memory", "first_seen", "last_seen", "pods")}
    assert recommend(replace(table, **cut)).requests.shape == (2, 0)
