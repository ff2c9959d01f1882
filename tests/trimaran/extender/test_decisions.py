"""Record of decisions: explanations, authorization, regret, memory limits and commands."""

import gc
import io
import random
import re
import threading
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from click.testing import CliRunner
from support.extending import SettableMetrics, StaticView, extender_args, metrics, profiles
from support.reviewing import ReviewingApi
from support.servers import served_app
from werkzeug.test import Client

from runtime.kubernetes.access_reviews import AccessReviews
from runtime.server.access import AccessCheck
from scoring import Pod
from trimaran.cli.main import main
from trimaran.extender.app import create_app
from trimaran.extender.decisions import POD_ROUTES
from trimaran.extender.decisions.authorizer import AllowAll, PodReadAuthorizer
from trimaran.extender.decisions.decision import BEST, Decision
from trimaran.extender.decisions.record import MEGABYTE, DecisionRecord, RecordLimits
from trimaran.extender.decisions.regret import RESOURCES, PlacementRegret, load, regret_table
from trimaran.extender.decisions.routes import decision_routes
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.telemetry import ExtenderTelemetry
from trimaran.extender.wire import ExtenderArgs

NAMES = [f"node-{number}" for number in range(30)]
LOADS = {name: 3.0 * number for number, name in enumerate(NAMES)}
NOW = 1_800_000_000.0


class Bench:
    """Prioritizer with its record, driven by hand."""

    def __init__(
        self, *, active: bool = True, limits: RecordLimits | None = None, authorizer: PodReadAuthorizer | None = None
    ) -> None:
        self.view = StaticView(*NAMES)
        self.metrics = SettableMetrics(None)
        self.metrics.current = metrics(LOADS, NOW - 20)
        self.telemetry = ExtenderTelemetry()
        self.record = DecisionRecord(self.view, self.metrics, self.telemetry, limits, clock=lambda: self.now)
        self.now = NOW
        self.telemetry.watch_decisions(self.record.__len__, lambda: self.record.size, lambda: 100.0)
        self.prioritizer = Prioritizer(
            profiles(), self.view, self.metrics, PrioritizerOptions(20, assume=False, seed=1), clock=lambda: self.now,
            is_active=lambda _: active, record=self.record.add,
        )  # fmt: skip
        routes = [decision_routes(self.record, self.view, authorizer or AllowAll())]
        access = AccessCheck(token="of-the-scheduler-", tokenless_routes=POD_ROUTES) if authorizer else None
        self.client = Client(create_app(self.prioritizer, self.telemetry, str, access, routes))

    def ask(self, pod: str = "pod-1", names: list[str] = NAMES, **options: Any) -> dict[str, int]:
        request = ExtenderArgs.decode(orjson.dumps(extender_args(*names, pod=pod, **options)))
        scores = dict(self.prioritizer.answer(request).scores)
        self.prioritizer._preparer.thread.submit(int).result()  # waits for the work after the answer
        return scores

    def bind(self, pod: str, node: str, at: float | None = None) -> None:
        with self.view.lock:
            placed_at = self.now if at is None else at
            self.view.state.put_pod(Pod(pod, uid=f"uid-of-{pod}", node_name=node, scheduled_at=placed_at))

    def place(self, node: str = "node-20", pod: str = "pod-1", **options: Any) -> dict[str, int]:
        """Request scores for a pod, bind it, and record both."""
        scores = self.ask(pod, **options)
        self.bind(pod, node)
        self.record.run_cycle()
        return scores

    def explained(self, pod: str = "default/pod-1") -> dict[str, Any]:
        response = self.client.get("/explain", query_string={"pod": pod})
        assert response.status_code == 200, response.text
        return response.json


reviews = partial(AccessReviews, verb="get", service="the extender")


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.prioritizer.close()


def test_a_decision_can_be_explained_at_once(bench: Bench) -> None:
    """A pod that was answered just now has a decision, which is in the list, too."""
    bench.ask()
    bench.bind("pod-1", "node-20")
    assert bench.explained()["outcome"] == "scored"
    assert [each["pod"] for each in bench.client.get("/decisions").json["decisions"]] == ["default/pod-1"]


def test_a_decision_has_explained_nodes_and_the_chosen_one(bench: Bench) -> None:
    """A decision has the best ten nodes and the chosen one with all terms, the age of the metrics, rank and margin."""
    scores = bench.ask()
    bench.now += 5
    bench.record.run_cycle()
    assert bench.explained()["chosen"] is None
    bench.bind("pod-1", "node-20")
    bench.record.run_cycle()
    decision = bench.explained()
    best = max(scores.values())
    assert decision["outcome"] == "scored"
    assert decision["mode"] == "active"
    assert decision["candidates"] == len(NAMES)
    assert decision["best"] == {"node": "node-0", "score": best}
    higher = sum(score > scores["node-20"] for score in scores.values())
    assert decision["chosen"] == {
        "node": "node-20", "bound_at": bench.now, "score": scores["node-20"], "rank": higher + 1,
        "margin": best - scores["node-20"],
    }  # fmt: skip
    assert [node["name"] for node in decision["nodes"]] == [*NAMES[:BEST], "node-20"]
    assert {node["name"]: node["answered"] for node in decision["nodes"]} == {
        node["name"]: scores[node["name"]] for node in decision["nodes"]
    }
    assert [node["chosen"] for node in decision["nodes"]] == [False] * BEST + [True]
    for node in decision["nodes"]:
        (plugin,) = node["plugins"]
        assert plugin["name"] == "LoadVariationRiskBalancing"
        assert plugin["terms"]
        assert plugin["why"]
        assert node["grade"] == "measured"
    assert decision["data"]["window"] == "5m"
    assert decision["data"]["age_seconds"] == NOW - bench.metrics.current.timestamp


def test_an_explanation_does_not_contradict_itself() -> None:
    """If kube-scheduler's own scores put another node first than ours, rank, margin and text say so."""
    bench = Bench()
    with served_app(bench.client.application) as url:
        document = ExtenderArgs.decode(orjson.dumps(extender_args(*NAMES)))
        answer = bench.prioritizer.answer(document)
        bench.record.add(document, answer, "node-9", active=True)  # best by the sum with kube-scheduler's own scores
        bench.bind("pod-1", "node-0")
        bench.record.run_cycle()
        best, chosen = answer.scores["node-9"], answer.scores["node-0"]
        assert chosen > best
        decision = bench.explained()
        assert decision["best"] == {"node": "node-9", "score": best}
        assert (decision["chosen"]["score"], decision["chosen"]["rank"]) == (chosen, 1)
        assert decision["chosen"]["margin"] == best - chosen
        text = run("explain", "default/pod-1", "--extender", url)[1]
        assert f"best        node-9 with {best}, the highest sum with kube-scheduler's own scores" in text
        assert f"node-0 with {chosen}, rank 1 by our scores, {chosen - best} above the best node's" in text
    bench.prioritizer.close()


def test_a_node_that_was_no_candidate_is_explained_as_such(bench: Bench) -> None:
    """A pod that was bound to a node outside of the request has neither a score nor a rank, and the text says why."""
    with served_app(bench.client.application) as url:
        bench.place(names=NAMES[:5])
        assert bench.explained()["chosen"]["rank"] is None
        assert "node-20" in run("explain", "default/pod-1", "--extender", url)[1]


def test_answers_do_not_wait_for_the_record(bench: Bench) -> None:
    """Answers continue while the record is locked."""
    with bench.record._lock:
        thread = threading.Thread(target=bench.ask)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()


def test_a_pod_without_a_decision_has_possible_reasons(bench: Bench) -> None:
    """The explanation of a running pod without a decision names the possible reasons."""
    bench.bind("pod-7", "node-3")
    document = bench.explained("default/pod-7")
    assert document["outcome"] == "not_asked"
    assert document["chosen"] == {"node": "node-3"}
    assert any("only one node" in reason for reason in document["why"])
    with bench.view.lock:
        nominated = Pod("pod-8", uid="8", node_name="node-4", nominated_node_name="node-4")
        bench.view.state.put_pod(nominated)
    assert "preemption" in " ".join(bench.explained("default/pod-8")["why"])


@pytest.mark.parametrize(
    ("pod", "status"),
    [("default/pod-9", 404), ("", 400), ("pod-1", 400), ("../etc", 400), ("a/b/c", 400), ("default/" + "x" * 300, 400),
     ("default/pod\n", 400)],
)  # fmt: skip
def test_an_unknown_pod_is_404_and_an_invalid_one_400(bench: Bench, pod: str, status: int) -> None:
    """An unknown pod is answered with 404, and an invalid name with 400."""
    assert bench.client.get("/explain", query_string={"pod": pod}).status_code == status


def test_a_retried_pod_has_its_last_decision(bench: Bench) -> None:
    """A retried pod is explained by its last answer, and counts once in the record."""
    bench.ask(names=NAMES[:5])
    bench.record.run_cycle()
    bench.place("node-6", names=NAMES[5:])
    decision = bench.explained()
    assert decision["candidates"] == len(NAMES) - 5
    assert decision["chosen"]["rank"] == 2
    assert len(bench.record) == 1


def test_the_decision_of_a_pod_that_is_never_bound_is_closed(bench: Bench) -> None:
    """After a timeout the decision of an unbound pod is closed without a chosen node."""
    bench.ask()
    bench.record.run_cycle()
    bench.now += 100
    bench.record.run_cycle()
    assert not bench.record._open
    assert bench.explained()["chosen"] is None
    assert len(bench.explained()["nodes"]) == BEST


def test_a_neutral_answer_is_recorded_with_its_outcome(bench: Bench) -> None:
    """A decision without metrics has the outcome ``no_metrics`` and no nodes."""
    bench.metrics.current = None
    bench.ask()
    bench.record.run_cycle()
    decision = bench.explained()
    assert (decision["outcome"], decision["best"], decision["nodes"], decision["data"]) == ("no_metrics", None, [], {})


@pytest.mark.parametrize("bound", [True, False])
def test_the_number_of_decisions_is_limited(bound: bool) -> None:
    """The oldest decisions are evicted with all their memory, whether their pods are bound or not."""
    bench = Bench(limits=RecordLimits(decisions=50))
    for number in range(80):
        bench.ask(f"pod-{number}")
        if bound:
            bench.bind(f"pod-{number}", "node-0")
        bench.now += 100
        bench.record.run_cycle()
    assert len(bench.record) == 50
    assert bench.record.explain("default/pod-29") is None
    assert bench.record.explain("default/pod-30") is not None
    assert bench.record.size < 50 * 20_000
    assert len(bench.record._last_key) == 50
    bench.prioritizer.close()


@pytest.mark.parametrize("limit", [1, 3])
def test_more_pods_in_flight_than_decisions_are_recorded(limit: int) -> None:
    """With more unbound pods than the largest number of decisions the record keeps the last ones, and works on."""
    bench = Bench(limits=RecordLimits(decisions=limit))
    for number in range(8):
        bench.ask(f"pod-{number}")
    bench.record.run_cycle()
    assert [each["pod"] for each in bench.record.recent(10)] == [f"default/pod-{7 - n}" for n in range(limit)]
    assert len(bench.record) == len(bench.record._last_key) == limit
    for number in range(8):
        bench.bind(f"pod-{number}", "node-0")
    bench.record.run_cycle()
    assert bench.explained("default/pod-7")["chosen"]["node"] == "node-0"
    assert len(bench.record) == len(bench.record._last_key) == limit
    bench.now += 100
    bench.ask("pod-8")
    bench.record.run_cycle()
    assert bench.explained("default/pod-8")["best"]["node"] == "node-0"
    assert len(bench.record) == limit
    for key in list(bench.record._open):
        bench.record._forget(key)
    for key in list(bench.record._closed):
        bench.record._forget(key)
    assert (len(bench.record), bench.record.size, bench.record._last_key) == (0, 0, {})
    bench.prioritizer.close()


def ask_about(bench: Bench, namespace: str, name: str, uid: str) -> None:
    """Request scores for a pod with any namespace, name and uid."""
    document = extender_args(*NAMES)
    document["Pod"]["metadata"] = {"namespace": namespace, "name": name, "uid": uid}
    bench.prioritizer.answer(ExtenderArgs.decode(orjson.dumps(document)))


@pytest.mark.parametrize("bound", [False, True])
def test_one_uid_under_many_names_is_limited(bound: bool) -> None:
    """Decisions about one uid under ever new names are evicted with all their memory."""
    bench = Bench(limits=RecordLimits(decisions=20))
    for number in range(100):
        ask_about(bench, "default", f"pod-{number}", "one")
        if bound:
            with bench.view.lock:
                bench.view.state.put_pod(Pod(f"pod-{number}", uid="one", node_name="node-0", scheduled_at=bench.now))
        bench.record.run_cycle()
    assert len(bench.record) == len(bench.record._last_key) == 20
    bench.prioritizer.close()


def test_a_uid_of_another_namespace_reveals_no_decision() -> None:
    """A caller with a right to namespace a reads only its own decision, not one about b/victim with the same uid."""
    api = ReviewingApi()
    bench = Bench(authorizer=reviews(api))
    headers = {"Authorization": "Bearer reader-token"}
    ask_about(bench, "default", "mine", "the-uid")
    bench.record.run_cycle()
    ask_about(bench, "b", "victim", "the-uid")
    with bench.view.lock:
        victim = Pod("victim", namespace="b", uid="the-uid", node_name="node-7", scheduled_at=bench.now)
        bench.view.state.put_pod(victim)
    bench.record.run_cycle()
    document = bench.client.get("/explain", query_string={"pod": "default/mine"}, headers=headers).json
    assert (document["pod"], document["chosen"]) == ("default/mine", None)
    assert bench.client.get("/explain", query_string={"pod": "b/victim"}, headers=headers).status_code == 403
    assert bench.record.explain("b/victim")["chosen"]["node"] == "node-7"
    bench.prioritizer.close()


def test_the_memory_of_decisions_is_limited() -> None:
    """The record stays within its limit in bytes, with open and with closed decisions."""
    bench = Bench(limits=RecordLimits(max_bytes=MEGABYTE))
    for number in range(400):
        bench.ask(f"pod-{number}")
        bench.record.run_cycle()
        assert bench.record.size < 1.05 * MEGABYTE
    assert 100 < len(bench.record) <= 400
    bench.prioritizer.close()


def test_10000_decisions_take_less_than_64_megabytes() -> None:
    """10,000 decisions with their regrets take less than 64 MB, and the reported size matches the allocated memory."""
    bench = Bench()
    record, rng = bench.record, random.Random(1)
    tracemalloc.start()
    try:
        for number in range(300):
            bench.place(rng.choice(NAMES), f"pod-{number}")
        bench.metrics.current = metrics(LOADS, NOW + 301)
        record.run_cycle()
        reported = record.size
        assert (len(record._open), len(record._closed), len(record._regrets)) == (0, 300, 300)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for container in (record._closed, record._last_key, record._unmeasured, record._regrets):
            container.clear()
        gc.collect()
        measured = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        bench.prioritizer.close()
    assert reported / 300 * 10_000 < 64 * MEGABYTE
    assert 0.8 * reported < measured <= reported


def test_regret_is_measured_in_the_first_window_after_the_binding(bench: Bench) -> None:
    """Regret is measured once, in the first window that began after the binding."""
    bench.place(cpu="400m")
    bench.metrics.current = metrics({**LOADS, "node-20": 95.0, "node-0": 20.0}, NOW + 299)  # began a second too early
    bench.record.run_cycle()
    assert bench.explained()["after"] is None
    assert bench.record.regrets()["waiting"] == 1
    bench.metrics.current = metrics({**LOADS, "node-20": 70.0, "node-0": 20.0}, NOW + 301)
    bench.record.run_cycle()
    bench.metrics.current = metrics({**LOADS, "node-20": 99.0, "node-0": 0.0}, NOW + 400)  # a later window is ignored
    bench.record.run_cycle()
    after = bench.explained()["after"]
    assert after["chosen_percent"] == {"cpu": 70.0, "memory": 70.0}
    assert after["best_percent"] == {"cpu": 20.0 + 10.0, "memory": pytest.approx(20.0 + 100 * 64 / (16 * 1024))}
    assert after["regret"] == 40.0
    (row,) = bench.record.regrets()["schedulers"]
    assert (row["scheduler"], row["mode"], row["pods"], row["regret"]) == ("load-aware", "active", 1, 40.0)
    assert bench.client.get("/regret").json["schedulers"] == [row]


def test_a_decision_that_cannot_be_measured_keeps_no_other_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The regret of later decisions is measured after one failed unexpectedly."""
    measure = Decision.measure

    def fail_for_the_first(decision: Decision, window: Any) -> Any:
        if decision.pod == "default/pod-1":
            raise ValueError("odd")
        return measure(decision, window)

    monkeypatch.setattr(Decision, "measure", fail_for_the_first)
    bench.place("node-0")
    bench.metrics.current = metrics(LOADS, NOW + 301)
    with pytest.raises(ValueError, match="odd"):
        bench.record.run_cycle()
    bench.now += 400
    bench.place("node-0", "pod-2")
    bench.metrics.current = metrics(LOADS, NOW + 801)
    bench.record.run_cycle()
    assert [row["pods"] for row in bench.record.regrets()["schedulers"]] == [1]


def test_our_best_node_has_no_regret(bench: Bench) -> None:
    """The regret is 0 if the scheduler chose our best node."""
    bench.place("node-0")
    bench.metrics.current = metrics(LOADS, NOW + 301)
    bench.record.run_cycle()
    assert bench.explained()["after"]["regret"] == 0
    assert bench.record.regrets()["schedulers"][0]["same_node"] == 1


def test_a_deleted_node_ends_the_measurement(bench: Bench) -> None:
    """A placement whose node is not measured afterwards leaves the queue without a regret."""
    bench.place()
    bench.metrics.current = metrics({"node-0": 3.0}, NOW + 301)
    bench.record.run_cycle()
    assert bench.record.regrets()["schedulers"] == []
    assert bench.record.regrets()["waiting"] == 0


def test_the_regret_table_matches_its_placements() -> None:
    """Every column matches a recomputation from the placements of its profile and mode."""
    rng = np.random.default_rng(3)

    def use() -> dict[str, float]:
        return dict(zip(RESOURCES, rng.uniform(0, 100, 2).tolist(), strict=True))

    placements = [
        PlacementRegret(f"s{rng.integers(2)}", bool(rng.integers(2)), bool(rng.integers(2)), use(), use(), (0, 300))
        for _ in range(400)
    ]
    rows = regret_table(placements, 80)
    assert [(row["scheduler"], row["mode"]) for row in rows] == sorted(
        {(each.scheduler, "active" if each.active else "shadow") for each in placements},
        key=lambda key: (key[0], key[1] == "active"),
    )
    for row in rows:
        group = [
            each
            for each in placements
            if (each.scheduler, "active" if each.active else "shadow") == (row["scheduler"], row["mode"])
        ]
        regrets = [load(each.chosen) - load(each.best) for each in group]
        assert row["pods"] == len(group)
        assert row["same_node"] == sum(each.same for each in group)
        assert row["regret"] == pytest.approx(sum(regrets) / len(group), abs=0.001)
        assert row["regret_p95"] == pytest.approx(np.percentile(regrets, 95), abs=0.001)
        assert row["chosen_hot"] == sum(load(each.chosen) >= 80 for each in group)
        assert row["best_hot"] == sum(load(each.best) >= 80 for each in group)


def test_metrics_include_rank_margin_age_stages_and_herd_ratio(bench: Bench) -> None:
    """The Prometheus metrics count rank, margin, age, stages and herd ratio."""
    for number in range(4):
        bench.ask(f"pod-{number}")
        bench.bind(f"pod-{number}", "node-0" if number else "node-20")
    bench.record.run_cycle()
    text = bench.client.get("/metrics").text
    assert 'trimaran_extender_chosen_rank_bucket{le="1.0",mode="active"} 3.0' in text
    assert 'trimaran_extender_chosen_margin_count{mode="active"} 4.0' in text
    assert 'trimaran_extender_stage_seconds_count{stage="score"} 4.0' in text
    assert 'trimaran_extender_stage_seconds_count{stage="wait"} 4.0' in text
    assert "trimaran_extender_data_age_seconds_count 4.0" in text
    assert "trimaran_extender_herd_ratio 0.75" in text
    assert "trimaran_extender_acting_percent 100.0" in text
    assert "trimaran_extender_decisions 4.0" in text


def test_the_command_names_the_option_for_the_token() -> None:
    """Without a token ``trimaran explain`` names ``--token-file`` and the command of kubectl that makes a token."""
    with served_app(Bench(authorizer=reviews(ReviewingApi())).client.application) as url:
        status, text = run("explain", "default/pod-1", "--extender", url)
    assert status == 1
    assert "--token-file FILE" in text
    assert "Authorization" not in text


def test_explanations_need_the_right_to_get_the_pods() -> None:
    """A missing or unknown token is 401, a missing right is 403, and neither answer mentions the pod."""
    api = ReviewingApi()
    bench = Bench(authorizer=reviews(api))
    bench.ask()
    bench.record.run_cycle()

    def status(token: str, pod: str = "default/pod-1") -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        response = bench.client.get("/explain", query_string={"pod": pod}, headers=headers)
        assert ("node-" in response.text) == (response.status_code == 200)
        return response.status_code

    assert status("reader-token") == 200
    assert status("") == status("unknown") == 401
    assert status("other-token") == 403
    assert status("reader-token", "kube-system/pod-1") == 403
    assert bench.client.get("/regret").status_code == 401  # this route needs the service's own token
    reviews_before = len(api.reviews)
    assert status("reader-token") == 200
    assert len(api.reviews) == reviews_before  # cached for ten seconds
    api.down = True
    assert status("fresh-token") == 503
    bench.prioritizer.close()


def test_the_list_has_the_last_decisions(bench: Bench) -> None:
    """The list has open decisions before closed ones, newest first, each as explained but without nodes."""
    for number in range(4):
        bench.ask(f"pod-{number}")
        bench.record.run_cycle()
    bench.bind("pod-2", "node-20")
    bench.bind("pod-1", "node-0")
    bench.record.run_cycle()

    def listed(**query: str) -> list[dict[str, Any]]:
        decisions: list[dict[str, Any]] = bench.client.get("/decisions", query_string=query).json["decisions"]
        return decisions

    assert [each["pod"] for each in listed()][:2] == ["default/pod-3", "default/pod-0"]
    assert {each["pod"] for each in listed()[2:]} == {"default/pod-1", "default/pod-2"}
    explained = {f"default/pod-{number}": bench.explained(f"default/pod-{number}") for number in range(4)}
    details = {name: {key: each[key] for key in ("nodes", "manifest")} for name, each in explained.items()}
    assert [{**each, **details[each["pod"]]} for each in listed()] == [explained[each["pod"]] for each in listed()]
    assert listed(limit="1") == listed()[:1]
    for bad in ("0", "-1", "1001", "x", "²"):
        assert bench.client.get("/decisions", query_string={"limit": bad}).status_code == 400


def test_the_list_needs_the_right_to_get_all_pods() -> None:
    """The right to get the pods of one namespace is not enough for the list."""
    api = ReviewingApi()
    bench = Bench(authorizer=reviews(api))
    bench.ask()
    bench.record.run_cycle()

    def listed(token: str) -> tuple[int, bool]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        response = bench.client.get("/decisions", headers=headers)
        return response.status_code, "pod-1" in response.text

    assert listed("") == listed("unknown") == (401, False)
    assert listed("reader-token") == (403, False)
    assert listed("admin-token") == (200, True)
    bench.prioritizer.close()


def test_a_busy_authorizer_asks_to_retry() -> None:
    """Above the limit of reviews the answer is 503 with a reason, whether or not the pod has a decision."""
    api = ReviewingApi()
    bench = Bench(authorizer=reviews(api, monotonic=lambda: 0.0))
    statuses = {
        bench.client.get("/explain?pod=default/x", headers={"Authorization": f"Bearer {number}"}).status_code
        for number in range(21)
    }
    assert statuses == {401, 503}
    response = bench.client.get("/decisions", headers={"Authorization": "Bearer admin-token"})
    assert (response.status_code, response.json["error"]["code"]) == (503, "too_many_reviews")
    bench.prioritizer.close()


@pytest.mark.parametrize("path", ["/prioritize", "/filter", "/preempt", "/livez", "/readyz"])
def test_explanations_run_apart_from_the_schedulers_requests(bench: Bench, path: str) -> None:
    """All requests but the scheduler's and the probes run in threads of their own."""
    is_background = bench.client.application.is_background
    assert not is_background({"PATH_INFO": path})
    assert all(is_background({"PATH_INFO": other}) for other in ("/explain", "/decisions", "/regret", "/metrics", "/x"))


def test_requests_that_wait_hold_no_body(bench: Bench) -> None:
    """The body of a request that may wait for a thread is dropped; the scheduler's is kept."""
    for path, kept in (("/explain", b""), ("/prioritize", b"x" * 100)):
        environ = {"PATH_INFO": path, "wsgi.input": io.BytesIO(b"x" * 100), "CONTENT_LENGTH": "100"}
        bench.client.application.is_background(environ)
        assert environ["wsgi.input"].read() == kept
        assert environ["CONTENT_LENGTH"] == str(len(kept))


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


def test_the_commands_print_decisions_and_regrets(bench: Bench, tmp_path: Path) -> None:
    """``trimaran explain`` and ``trimaran extender regret`` print the served document, as text and as JSON."""
    with served_app(bench.client.application) as url:
        bench.ask()
        bench.record.run_cycle()
        assert "unknown (yet)" in run("explain", "default/pod-1", "--extender", url)[1]
        bench.bind("pod-1", "node-20")
        bench.record.run_cycle()
        bench.metrics.current = metrics({**LOADS, "node-20": 70.0, "node-0": 20.0}, NOW + 301)
        bench.record.run_cycle()
        status, text = run("explain", "default/pod-1", "--extender", url)
        assert status == 0
        for part in ("answered 2027-", "candidates  30", "5m window of Fake, 20 s old", "best        node-0 with",
                     "expected    by requests: no use is learned",
                     "rank 21", "regret +", "*   node-20", "LoadVariationRiskBalancing"):  # fmt: skip
            assert part in text, part
        _, document = run("explain", "default/pod-1", "--extender", url, "--output", "json")
        assert orjson.loads(document) == bench.explained()
        _, shown = run("extender", "regret", "--extender", url)
        assert re.search(r"load-aware +active +1 +0 +70\.0%", shown)
        bench.bind("pod-2", "node-3")
        assert "did not score" in run("explain", "default/pod-2", "--extender", url)[1]
        assert run("explain", "default/pod-9", "--extender", url) == (
            1, "trimaran: pod default/pod-9 has no recorded decision and is not on a node\n",
        )  # fmt: skip
    status, error = run("explain", "default/pod-1", "--extender", url)
    assert status == 1
    assert url in error
    missing = str(tmp_path / "none")
    assert run("explain", "default/pod-1", "--extender", url, "--token-file", missing)[0] == 1


def test_environments_are_not_recorded(bench: Bench) -> None:
    """A decision does not contain the environment of a pod's containers."""
    document = extender_args(*NAMES)
    document["Pod"]["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hunter-2-secret"}]
    bench.prioritizer.answer(ExtenderArgs.decode(orjson.dumps(document)))
    bench.bind("pod-1", "node-20")
    bench.record.run_cycle()
    assert "hunter-2" not in orjson.dumps(bench.explained()).decode()
