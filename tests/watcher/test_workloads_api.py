"""Routes of workloads: pages, one workload, and the compact form for services."""

import jsonschema
import numpy as np
import orjson
import pytest
from support.bench import Api
from support.workload_rounds import measured

from runtime.kubernetes.workloads import Workload
from watcher.api.openapi import document
from watcher.usage.recommend.recommendation import recommend
from watcher.usage.sources.pods import ContainerResources, PodKey, PodTemplate, RunningPod
from watcher.wire import COLUMNS_TYPE, WireError
from watcher.wire.workloads import decode_workloads, encode_workloads

DOCUMENT = document()


@pytest.fixture(scope="module")
def learned() -> Api:
    """Return an API whose watcher has learned from three rounds of pods of 40 workloads."""
    api = Api()
    for number in range(3):
        api.watcher.workloads.observe(*measured(number))
    return api


def validate(body: object, name: str) -> None:
    """Check a body against a schema of the OpenAPI document."""
    schema = {**DOCUMENT["components"]["schemas"][name], "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(body)


def test_pages_list_every_workload_once(learned: Api) -> None:
    """Pages follow each other by next, sorted, until every workload was listed once."""
    names, after = [], ""
    while True:
        page = learned.get(f"/workloads?limit=7&continue={after}").json
        validate(page, "Workloads")
        assert page["total"] == len(learned.watcher.workloads.table())
        names += [(item["namespace"], item["kind"], item["name"]) for item in page["workloads"]]
        assert len(page["workloads"]) == 7 or "next" not in page
        if "next" not in page:
            break
        after = page["next"]
    assert names == sorted(learned.watcher.workloads.table().workloads)


def test_the_last_page_has_what_was_never_measured() -> None:
    """Containers of running pods without a measurement are listed once, on the last page, by the same filters."""
    api = Api()
    use, pods = measured(0)
    lost = {f"lost-{n}": Workload(f"ns-{n}", "StatefulSet", f"lost-{n}") for n in range(2)}
    more = {
        PodKey(each.namespace, name): RunningPod(PodTemplate(each, "", (ContainerResources("main"),)), 1.0)
        for name, each in lost.items()
    }
    api.watcher.workloads.observe(use, {**pods, **more})
    first, last = api.get("/workloads?limit=1").json, api.get("/workloads").json
    validate(first, "Workloads")
    validate(last, "Workloads")
    assert "not_measured" not in first
    assert [(each["name"], each["pods"]) for each in last["not_measured"]] == [("lost-0", 1), ("lost-1", 1)]
    assert [each["name"] for each in api.get("/workloads?namespace=ns-1").json["not_measured"]] == ["lost-1"]


def test_what_was_never_measured_is_listed_where_nothing_else_is() -> None:
    """A cluster whose containers all end before they are measured has a list of them, in both views; none is a 404."""
    api = Api()
    assert api.get("/workloads").status_code == 404
    use, _ = measured(0)
    lost = RunningPod(PodTemplate(Workload("shop", "Job", "lost"), "", (ContainerResources("main"),)), 1.0)
    api.watcher.workloads.observe(use, {PodKey("shop", "lost-1"): lost})
    page = api.get("/workloads").json
    validate(page, "Workloads")
    assert page["workloads"] == []
    assert [each["name"] for each in page["not_measured"]] == ["lost"]


def test_a_workload_has_its_containers_in_absolute_amounts(learned: Api) -> None:
    """One workload has the learner's numbers, those of each container, and its use by the hour of the day."""
    table, containers = learned.watcher.workloads.table(), learned.watcher.workloads.containers()
    workload = table.workloads[3]
    item = learned.get("/workloads/" + "/".join(workload)).json
    validate(item, "Workload")
    assert item["use"]["cpu_cores"] == pytest.approx(table.use[0, 3], rel=1e-5)
    assert item["deviation"]["memory_bytes"] == pytest.approx(table.deviations[1, 3], rel=1e-5)
    rows = [row for row, key in enumerate(containers.keys) if key.workload == workload]
    assert [each["name"] for each in item["containers"]] == [containers.keys[row].container for row in rows]
    for each, row in zip(item["containers"], rows, strict=True):
        assert each["requests"]["cpu_cores"] == pytest.approx(containers.requests[0, row])
        assert each["cpu_cores_percentiles"]["90"] == pytest.approx(containers.cpu_percentiles[1, row], rel=1e-5)
        assert each["highest_memory_bytes"] == pytest.approx(containers.highest_memory[row], rel=1e-5)
        hours = [np.nan if value is None else value for value in each["by_hour"]["cpu_cores"]]
        assert hours == pytest.approx(containers.by_hour[0, row], rel=1e-5, nan_ok=True)
        daily = learned.watcher.workloads.daily(workload)
        highest = each["by_day"]["highest_memory_bytes"]
        place = [key.container for key in daily.keys].index(each["name"])
        assert [np.nan if value is None else value for value in highest] == pytest.approx(
            daily.highest_memory[place], rel=1e-5, nan_ok=True
        )
        assert each["by_day"]["cpu_cores_percentiles"]["95"][0] == pytest.approx(daily.cpu[1, place, 0], rel=1e-5)
    assert "by_hour" not in learned.get("/workloads").json["workloads"][0]["containers"][0]


def test_each_container_has_its_recommendation(learned: Api) -> None:
    """Recommendation, verdict, reason and waste are those of the rule; an empty text and an unknown amount are null."""
    containers = learned.watcher.workloads.containers()
    advice = recommend(containers)
    row_of = {(key.workload.name, key.container): row for row, key in enumerate(containers.keys)}
    reasons = set()
    for item in learned.get("/workloads").json["workloads"]:
        for each in item["containers"]:
            row = row_of[item["name"], each["name"]]
            for place, resource in enumerate(("cpu_cores", "memory_bytes")):
                assert each["recommended"][resource] == pytest.approx(advice.requests[place, row])
                assert each["verdict"][resource] == advice.verdicts[place, row]
                assert each["reason"][resource] == (advice.reasons[place, row] or None)
                assert each["wasted"][resource] == pytest.approx(advice.wasted[place, row], rel=1e-5)
                reasons.add(each["reason"][resource])
    assert {None, "no request is set", "history of 1.1 days, below 7"} <= reasons


def test_filters_select_workloads(learned: Api) -> None:
    """Namespace, kind and name select workloads; a page without any is empty."""
    assert len(learned.get("/workloads?namespace=shop&kind=Deployment&name=web-7").json["workloads"]) == 1
    assert learned.get("/workloads?namespace=other").json["workloads"] == []


def test_services_read_columns_with_an_etag(learned: Api) -> None:
    """The compact form has the learner's table without loss; its ETag changes only with a round."""
    answer = learned.get("/workloads", Accept=COLUMNS_TYPE)
    validate(answer.json, "WorkloadColumns")
    decoded, table = decode_workloads(answer.data), learned.watcher.workloads.table()
    assert decoded.workloads == table.workloads
    for name in ("use", "deviations", "level", "level_deviation", "first_seen", "last_seen", "pods", "pod_minutes"):
        assert np.array_equal(getattr(decoded, name), getattr(table, name))
    again = learned.get("/workloads", Accept=COLUMNS_TYPE, If_None_Match=answer.headers["ETag"])
    assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize(
    ("path", "status", "code", "message"),
    [
        ("/workloads?limit=0", 400, "bad_request", "limit: must be a whole number from 1 to 5000"),
        *(
            (f"/workloads?limit={limit}", 400, "bad_request", "limit: must be a whole number from 1 to 5000")
            for limit in ("many", "5001", "%2B5", "1_0", "-1", "%D9%A5", "9" * 5000)
        ),
        ("/workloads?continue=web", 400, "bad_request", "continue: must be the value of next in the previous page"),
        ("/workloads?label=web", 400, "bad_request", "label"),
        ("/workloads/shop/Deployment/none", 404, "unknown_workload", "unknown workload shop/Deployment/none"),
    ],
)
def test_bad_requests_are_explained(learned: Api, path: str, status: int, code: str, message: str) -> None:
    """Wrong parameters are 400, an unknown workload is 404, each with a message."""
    answer = learned.get(path)
    assert (answer.status_code, answer.json["error"]["code"]) == (status, code)
    assert message in answer.json["error"]["message"]


@pytest.mark.parametrize("path", ["/workloads", "/workloads/shop/Deployment/web-1"])
def test_without_a_round_the_reason_is_given(api: Api, path: str) -> None:
    """Until pods are measured the answer is 404 with the code no_metrics."""
    answer = api.get(path)
    assert (answer.status_code, answer.json["error"]["code"]) == (404, "no_metrics")
    assert answer.json["error"]["message"].startswith("the use of no workload is known")


@pytest.mark.parametrize("change", [{"use": [[1], [2]]}, {"kind": ["a"]}, {"level": None}, {"pods": ["x"]}])
def test_a_damaged_table_is_refused(learned: Api, change: dict[str, object]) -> None:
    """Columns of other lengths or types are a WireError, not a wrong table."""
    body = orjson.loads(encode_workloads(learned.watcher.workloads.table()))
    with pytest.raises(WireError, match="workloads"):
        decode_workloads(orjson.dumps({**body, **change}))


def test_the_table_becomes_a_data_frame(learned: Api) -> None:
    """A data frame has a row for each workload, with its use and its times."""
    table = learned.watcher.workloads.table()
    frame = table.to_frame()
    assert frame.index.names == ["namespace", "kind", "name"]
    assert frame.loc[table.workloads[2], "cpu_cores"] == table.use[0, 2]
    assert frame["last_seen"].iloc[0].timestamp() == table.last_seen[0]
