"""Decisions: recorded behind the answers, explained to those who may know, and held against what came of them."""

import gc
import random
import re
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import requests
from click.testing import CliRunner
from support.extending import HeldMetrics, StillView, asked, metrics, profiles
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import Client

from runtime.server.access import Access
from scoring import Pod
from trimaran.cli.main import main
from trimaran.extender.app import create_app
from trimaran.extender.decisions import POD_ROUTES
from trimaran.extender.decisions.authorizer import AccessReviewAuthorizer, AllowAll, PodReadAuthorizer, ReadVerdict
from trimaran.extender.decisions.decision import BEST
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
    """An extender's prioritizer and its record, driven by hand."""

    def __init__(
        self, *, acts: bool = True, bounds: RecordLimits | None = None, readers: PodReadAuthorizer | None = None
    ) -> None:
        self.view = StillView(*NAMES)
        self.metrics = HeldMetrics(None)
        self.metrics.held = metrics(LOADS, NOW - 20)
        self.telemetry = ExtenderTelemetry()
        self.record = DecisionRecord(self.view, self.metrics, self.telemetry, bounds, clock=lambda: self.now)
        self.now = NOW
        self.telemetry.watch_decisions(self.record, lambda: 100.0)
        self.prioritizer = Prioritizer(
            profiles(), self.view, self.metrics, PrioritizerOptions(20, assume=False, seed=1), clock=lambda: self.now,
            is_active=lambda _: acts, record=self.record.add,
        )  # fmt: skip
        more = [decision_routes(self.record, self.view, readers or AllowAll())]
        access = Access(token="of-the-scheduler-", open_routes=POD_ROUTES) if readers else None
        self.client = Client(create_app(self.prioritizer, self.telemetry, lambda: True, access, more))

    def ask(self, pod: str = "pod-1", names: list[str] = NAMES, **options: Any) -> dict[str, int]:
        request = ExtenderArgs.decode(orjson.dumps(asked(*names, pod=pod, **options)))
        scores = dict(self.prioritizer.answer(request).scores)
        self.prioritizer._thread.submit(int).result()  # what comes after an answer is done then
        return scores

    def bind(self, pod: str, node: str, at: float | None = None) -> None:
        with self.view.lock:
            placed_at = self.now if at is None else at
            self.view.state.put_pod(Pod(pod, uid=f"uid-of-{pod}", node_name=node, scheduled_at=placed_at))

    def explained(self, pod: str = "default/pod-1") -> dict[str, Any]:
        response = self.client.get("/explain", query_string={"pod": pod})
        assert response.status_code == 200, response.text
        return response.json


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.prioritizer.close()


def test_a_pod_is_explained_as_soon_as_it_is_answered(bench: Bench) -> None:
    """Nobody who asks at once is told that the extender was not asked."""
    bench.ask()
    bench.bind("pod-1", "node-20")
    assert bench.explained()["outcome"] == "scored"


def test_a_decision_is_listed_as_soon_as_it_is_answered(bench: Bench) -> None:
    """The list, too, has what was answered just now."""
    bench.ask()
    assert [each["pod"] for each in bench.client.get("/decisions").json["decisions"]] == ["default/pod-1"]


def test_a_decision_says_why_and_where(bench: Bench) -> None:
    """Kept are the best ten and the chosen node with every term, the age of the data, and how far the chosen is off."""
    scores = bench.ask()
    bench.now += 5
    bench.record.run_cycle()
    assert bench.explained()["chosen"] is None
    bench.bind("pod-1", "node-20")
    bench.record.run_cycle()
    found = bench.explained()
    best = max(scores.values())
    assert found["outcome"] == "scored"
    assert found["mode"] == "active"
    assert found["candidates"] == len(NAMES)
    assert found["best"] == {"node": "node-0", "score": best}
    higher = sum(score > scores["node-20"] for score in scores.values())
    assert found["chosen"] == {
        "node": "node-20", "bound_at": bench.now, "score": scores["node-20"], "rank": higher + 1,
        "margin": best - scores["node-20"],
    }  # fmt: skip
    assert [node["name"] for node in found["nodes"]] == [*NAMES[:BEST], "node-20"]
    assert {node["name"]: node["answered"] for node in found["nodes"]} == {
        node["name"]: scores[node["name"]] for node in found["nodes"]
    }
    assert [node["chosen"] for node in found["nodes"]] == [False] * BEST + [True]
    for node in found["nodes"]:
        (plugin,) = node["plugins"]
        assert plugin["name"] == "LoadVariationRiskBalancing"
        assert plugin["terms"]
        assert plugin["why"]
        assert node["grade"] == "measured"
    assert found["data"]["window"] == "5m"
    assert found["data"]["age_seconds"] == NOW - bench.metrics.held.timestamp


def test_the_answer_does_not_wait_for_the_record(bench: Bench) -> None:
    """While the record cannot be written to, answers come all the same."""
    with bench.record._lock:
        done = threading.Thread(target=bench.ask)
        done.start()
        done.join(10)
        assert not done.is_alive()


def test_what_was_not_asked_about_is_told(bench: Bench) -> None:
    """A pod that runs without a decision was not asked about, and the reasons why that may be are named."""
    bench.bind("pod-7", "node-3")
    found = bench.explained("default/pod-7")
    assert found["outcome"] == "not_asked"
    assert found["chosen"] == {"node": "node-3"}
    assert any("only one node was feasible" in reason for reason in found["why"])
    with bench.view.lock:
        nominated = Pod("pod-8", uid="8", node_name="node-4", nominated_node_name="node-4")
        bench.view.state.put_pod(nominated)
    assert "preemption" in " ".join(bench.explained("default/pod-8")["why"])


@pytest.mark.parametrize(
    ("pod", "status"),
    [("default/pod-9", 404), ("", 400), ("pod-1", 400), ("../etc", 400), ("a/b/c", 400), ("default/" + "x" * 300, 400),
     ("default/pod\n", 400)],
)  # fmt: skip
def test_what_there_is_not_is_refused(bench: Bench, pod: str, status: int) -> None:
    """A pod that nobody knows is a 404, and what names none a 400."""
    assert bench.client.get("/explain", query_string={"pod": pod}).status_code == status


def test_a_pod_asked_about_again_has_its_last_decision(bench: Bench) -> None:
    """A pod that could not be placed and is tried again is explained by what was answered last."""
    bench.ask(names=NAMES[:5])
    bench.record.run_cycle()
    bench.ask(names=NAMES[5:])
    bench.record.run_cycle()
    bench.bind("pod-1", "node-6")
    bench.record.run_cycle()
    found = bench.explained()
    assert found["candidates"] == len(NAMES) - 5
    assert found["chosen"]["rank"] == 2
    assert len(bench.record) == 1


def test_a_pod_that_is_never_bound_is_closed(bench: Bench) -> None:
    """After a while nobody looks for it any more; its decision stays, without a chosen node."""
    bench.ask()
    bench.record.run_cycle()
    bench.now += 100
    bench.record.run_cycle()
    assert not bench.record._open
    assert bench.explained()["chosen"] is None
    assert len(bench.explained()["nodes"]) == BEST


def test_an_answer_that_is_alike_says_why(bench: Bench) -> None:
    """Without metrics there is a decision too: it says that there were none."""
    bench.metrics.held = None
    bench.ask()
    bench.record.run_cycle()
    found = bench.explained()
    assert (found["outcome"], found["best"], found["nodes"], found["data"]) == ("no_metrics", None, [], {})


@pytest.mark.parametrize("bound", [True, False])
def test_what_is_kept_is_bounded(bound: bool) -> None:
    """The last so many decisions are kept, within so many bytes; the oldest go first, and their memory with them."""
    bench = Bench(bounds=RecordLimits(decisions=50))
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
    assert len(bench.record._newest) == 50
    bench.prioritizer.close()


def test_bytes_are_bounded_too() -> None:
    """A small bound in bytes keeps fewer decisions, whether their pods are bound or still on their way."""
    bench = Bench(bounds=RecordLimits(max_bytes=MEGABYTE))
    for number in range(400):
        bench.ask(f"pod-{number}")
        bench.record.run_cycle()
        assert bench.record.size < 1.05 * MEGABYTE
    assert 100 < len(bench.record) <= 400
    bench.prioritizer.close()


def test_ten_thousand_decisions_take_less_than_64_megabytes() -> None:
    """Packed as they are kept, of a cluster of many candidates, 10,000 fit; with what came of them."""
    bench = Bench()
    record, dice = bench.record, random.Random(1)
    tracemalloc.start()
    try:
        for number in range(300):
            bench.ask(f"pod-{number}")
            bench.bind(f"pod-{number}", dice.choice(NAMES))
            record.run_cycle()
        bench.metrics.held = metrics(LOADS, NOW + 301)
        record.run_cycle()
        told = record.size
        assert (len(record._open), len(record._kept), len(record._worths)) == (0, 300, 300)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for kept in (record._kept, record._newest, record._unmeasured, record._worths):
            kept.clear()
        gc.collect()
        taken = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        bench.prioritizer.close()
    assert told / 300 * 10_000 < 64 * MEGABYTE
    assert 0.8 * told < taken <= told


def test_regret_is_measured_when_the_window_is_whole(bench: Bench) -> None:
    """Only the first window that began after the binding counts; regret is what the chosen node was worse by."""
    bench.ask(cpu="400m")
    bench.record.run_cycle()
    bench.bind("pod-1", "node-20")
    bench.record.run_cycle()
    bench.metrics.held = metrics({**LOADS, "node-20": 95.0, "node-0": 20.0}, NOW + 299)  # it began a second too early
    bench.record.run_cycle()
    assert bench.explained()["after"] is None
    assert bench.record.regrets()["waiting"] == 1
    bench.metrics.held = metrics({**LOADS, "node-20": 70.0, "node-0": 20.0}, NOW + 301)
    bench.record.run_cycle()
    bench.metrics.held = metrics({**LOADS, "node-20": 99.0, "node-0": 0.0}, NOW + 400)  # the first one counts
    bench.record.run_cycle()
    after = bench.explained()["after"]
    assert after["chosen_percent"] == {"cpu": 70.0, "memory": 70.0}
    assert after["best_percent"] == {"cpu": 20.0 + 10.0, "memory": pytest.approx(20.0 + 100 * 64 / (16 * 1024))}
    assert after["regret"] == 40.0
    (row,) = bench.record.regrets()["schedulers"]
    assert (row["scheduler"], row["mode"], row["pods"], row["regret"]) == ("load-aware", "active", 1, 40.0)
    assert bench.client.get("/regret").json["schedulers"] == [row]


def test_the_same_node_has_no_regret(bench: Bench) -> None:
    """Where the scheduler chose what we would have, there is nothing to regret."""
    bench.ask()
    bench.bind("pod-1", "node-0")
    bench.record.run_cycle()
    bench.metrics.held = metrics(LOADS, NOW + 301)
    bench.record.run_cycle()
    assert bench.explained()["after"]["regret"] == 0
    assert bench.record.regrets()["schedulers"][0]["same_node"] == 1


def test_a_node_that_is_gone_costs_the_measurement_alone(bench: Bench) -> None:
    """What was not measured afterwards is not in the regret_table, and waits no longer."""
    bench.ask()
    bench.bind("pod-1", "node-20")
    bench.record.run_cycle()
    bench.metrics.held = metrics({"node-0": 3.0}, NOW + 301)
    bench.record.run_cycle()
    assert bench.record.regrets()["schedulers"] == []
    assert bench.record.regrets()["waiting"] == 0


def test_the_table_is_that_of_its_placements() -> None:
    """Every column is recomputed from the single placements, apart for each profile and mode."""
    dice = np.random.default_rng(3)

    def use() -> dict[str, float]:
        return dict(zip(RESOURCES, dice.uniform(0, 100, 2).tolist(), strict=True))

    worths = [
        PlacementRegret(f"s{dice.integers(2)}", bool(dice.integers(2)), bool(dice.integers(2)), use(), use(), (0, 300))
        for _ in range(400)
    ]
    rows = regret_table(worths, 80)
    assert [(row["scheduler"], row["mode"]) for row in rows] == sorted(
        {(each.scheduler, "active" if each.active else "shadow") for each in worths},
        key=lambda key: (key[0], key[1] == "active"),
    )
    for row in rows:
        some = [
            w for w in worths if (w.scheduler, "active" if w.active else "shadow") == (row["scheduler"], row["mode"])
        ]
        regrets = [load(each.chosen) - load(each.best) for each in some]
        assert row["pods"] == len(some)
        assert row["same_node"] == sum(each.same for each in some)
        assert row["regret"] == pytest.approx(sum(regrets) / len(some), abs=0.001)
        assert row["regret_p95"] == pytest.approx(np.percentile(regrets, 95), abs=0.001)
        assert row["chosen_hot"] == sum(load(each.chosen) >= 80 for each in some)
        assert row["best_hot"] == sum(load(each.best) >= 80 for each in some)


def test_metrics_tell_rank_margin_age_stages_and_the_herd(bench: Bench) -> None:
    """What an operator watches is counted."""
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


class ApiServer:
    """Knows three tokens: one may read the namespace default, one all namespaces, the other nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.down = False

    def send(self, method: str, path: str, _deadline: object, body: Any = None) -> Any:
        if self.down:
            raise requests.ConnectionError("no route")
        self.asked.append((path, body))
        if path.endswith("tokenreviews"):
            users = {"reader-token": "reader", "admin-token": "admin", "other-token": "other"}
            user = users.get(body["spec"]["token"])
            return {"status": {"authenticated": bool(user), "user": {"username": user, "groups": ["g"]}}}
        spec = body["spec"]
        rights = {"reader": {"default"}, "admin": {"default", "kube-system", ""}}
        allowed = spec["resourceAttributes"]["namespace"] in rights.get(spec["user"], ())
        return {"status": {"allowed": allowed}}


def test_only_namespaces_that_the_caller_may_read_are_explained() -> None:
    """Without a Kubernetes token 401, without the right to get the namespace's pods 403, and the pod stays unknown."""
    api = ApiServer()
    bench = Bench(readers=AccessReviewAuthorizer(api))
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
    assert bench.client.get("/regret").status_code == 401  # the service's own token is asked for there
    asked_before = len(api.asked)
    assert status("reader-token") == 200
    assert len(api.asked) == asked_before  # believed for ten seconds
    api.down = True
    assert status("fresh-token") == 503
    bench.prioritizer.close()


def test_the_last_decisions_are_listed(bench: Bench) -> None:
    """The newest first, those whose pods are on their way before the others; each as it is explained, but its nodes."""
    for number in range(4):
        bench.ask(f"pod-{number}")
        bench.record.run_cycle()
    bench.bind("pod-2", "node-20")
    bench.bind("pod-1", "node-0")
    bench.record.run_cycle()

    def listed(**query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = bench.client.get("/decisions", query_string=query).json["decisions"]
        return found

    assert [each["pod"] for each in listed()][:2] == ["default/pod-3", "default/pod-0"]
    assert {each["pod"] for each in listed()[2:]} == {"default/pod-1", "default/pod-2"}
    explained = {f"default/pod-{number}": bench.explained(f"default/pod-{number}") for number in range(4)}
    told = {name: {key: each[key] for key in ("nodes", "manifest")} for name, each in explained.items()}
    assert [{**each, **told[each["pod"]]} for each in listed()] == [explained[each["pod"]] for each in listed()]
    assert listed(limit="1") == listed()[:1]
    for bad in ("0", "-1", "1001", "x", "²"):
        assert bench.client.get("/decisions", query_string={"limit": bad}).status_code == 400


def test_a_list_is_for_those_who_may_read_all_namespaces() -> None:
    """The right to get one namespace's pods is not enough; what is missing is said."""
    api = ApiServer()
    bench = Bench(readers=AccessReviewAuthorizer(api))
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


def test_a_review_is_not_believed_for_long() -> None:
    """A right that was taken away is gone within seconds."""
    api, now = ApiServer(), [0.0]
    reviewed = AccessReviewAuthorizer(api, monotonic=lambda: now[0])
    assert reviewed.judge("Bearer reader-token", "default") is ReadVerdict.ALLOWED
    now[0] = 11.0
    api.send = lambda *_: {"status": {}}  # type: ignore[method-assign]
    assert reviewed.judge("Bearer reader-token", "default") is ReadVerdict.UNKNOWN


@contextmanager
def served(bench: Bench) -> Iterator[str]:
    """Serve a bench's application on a port."""
    server = make_server("127.0.0.1", 0, bench.client.application, request_handler=Silent)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join()
    server.server_close()


class Silent(WSGIRequestHandler):
    def log(self, *_: object, **__: object) -> None:
        pass


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


def test_the_commands_say_it_in_words(bench: Bench, tmp_path: Path) -> None:
    """``trimaran explain`` tells the decision, ``trimaran extender regret`` the table; as JSON what is served."""
    with served(bench) as url:
        bench.ask()
        bench.record.run_cycle()
        assert "not known (yet)" in run("explain", "default/pod-1", "--extender", url)[1]
        bench.bind("pod-1", "node-20")
        bench.record.run_cycle()
        bench.metrics.held = metrics({**LOADS, "node-20": 70.0, "node-0": 20.0}, NOW + 301)
        bench.record.run_cycle()
        status, told = run("explain", "default/pod-1", "--extender", url)
        assert status == 0
        for part in ("answered 2027-", "candidates  30", "5m window of Fake, 20 s old", "best        node-0 with",
                     "place 21", "regret +", "*   node-20", "LoadVariationRiskBalancing"):  # fmt: skip
            assert part in told, part
        _, document = run("explain", "default/pod-1", "--extender", url, "--output", "json")
        assert orjson.loads(document) == bench.explained()
        _, shown = run("extender", "regret", "--extender", url)
        assert re.search(r"load-aware +active +1 +0 +70\.0%", shown)
        bench.bind("pod-2", "node-3")
        assert "was not asked about it" in run("explain", "default/pod-2", "--extender", url)[1]
        assert run("explain", "default/pod-9", "--extender", url) == (
            1, "trimaran: no decision for pod default/pod-9 is kept, and it is on no node\n",
        )  # fmt: skip
    status, why = run("explain", "default/pod-1", "--extender", url)
    assert status == 1
    assert url in why
    missing = str(tmp_path / "none")
    assert run("explain", "default/pod-1", "--extender", url, "--token-file", missing)[0] == 1


def test_nothing_of_a_pods_environment_is_kept(bench: Bench) -> None:
    """What a pod's containers are given is no part of a decision."""
    document = asked(*NAMES)
    document["Pod"]["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hunter-2-secret"}]
    bench.prioritizer.answer(ExtenderArgs.decode(orjson.dumps(document)))
    bench.bind("pod-1", "node-20")
    bench.record.run_cycle()
    assert "hunter-2" not in orjson.dumps(bench.explained()).decode()
