"""Field trial in a running extender, with a clock that the test sets, and ConfigMaps in memory."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import requests
from click.testing import CliRunner
from conftest import History
from flask import Flask
from support.extending import SettableMetrics, metrics
from support.servers import served_app

from runtime.http.gather import Deadline
from scoring import Pod
from trimaran.cli.main import main
from trimaran.extender.settings import ExtenderSettings
from trimaran.extender.telemetry import ExtenderTelemetry
from trimaran.extender.trial.field_trial import FieldTrial, TrialSources
from trimaran.extender.trial.outcomes import CPU_LIMIT, HOT, MEMORY_LIMIT, PENDING, PLACED_HOT, QUERY, LoadThresholds
from trimaran.extender.trial.promql_value import PromqlValue
from trimaran.extender.trial.routes import trial_routes
from trimaran.extender.trial.schedule import Block, TrialSchedule
from trimaran.extender.trial.state import TrialPlan

BLOCK = 1800
SCHEDULE = TrialSchedule("trial", BLOCK, 6)
PLAN = TrialPlan(SCHEDULE, LoadThresholds(80, 95))
BEGIN = 1_800_000_000 // (2 * BLOCK) * 2 * BLOCK
STEP = 60
CALM, HOT_LOADS = {"node-1": 40.0, "node-2": 50.0}, {"node-1": 90.0, "node-2": 96.0}


class ConfigMaps:
    """ConfigMaps of an API server, with versions; ``refusal`` is a status that all requests get."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.refusal = 0
        self._version = 0

    def send(
        self, method: str, path: str, deadline: Deadline, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        """Handle a request."""
        if self.refusal:
            self._fail(self.refusal)
        name = path.removeprefix("/api/v1/namespaces/trials/configmaps").lstrip("/") or body["metadata"]["name"]
        found = self.objects.get(name)
        if method == "GET":
            return found or self._fail(404)
        version = body["metadata"].get("resourceVersion")
        if (method == "POST") == (found is not None) or (found and version != found["metadata"]["resourceVersion"]):
            self._fail(409)
        self._version += 1
        written = orjson.loads(orjson.dumps(body))
        written["metadata"]["resourceVersion"] = str(self._version)
        self.objects[name] = written
        return written

    @property
    def state(self) -> dict[str, Any]:
        """The stored state of the trial."""
        document: dict[str, Any] = orjson.loads(self.objects["trimaran-trial-trial"]["data"]["trial.json"])
        return document

    def _fail(self, status: int) -> None:
        response = requests.Response()
        response.status_code = status
        raise requests.HTTPError(f"status {status}", response=response)


class Replica:
    """One replica of the extender, whose cluster and clock the test sets."""

    def __init__(self, api: ConfigMaps, plan: TrialPlan | None = PLAN, now: float = BEGIN - BLOCK) -> None:
        self.now, self.plan = now, plan
        self.can_act = True
        self.value: float | None = None
        self.metrics = SettableMetrics(CALM)
        self.announced: list[str] = []
        sources = TrialSources(
            self.metrics,  # type: ignore[arg-type]  has the one method that is called
            ("load-aware",),
            can_act=lambda: self.can_act,
            ask=lambda _query: self.value,
            announce=lambda reason, _message, _is_warning: self.announced.append(reason),
        )
        self.trial = FieldTrial(
            api, "trials", lambda: self.plan, sources, clock=lambda: self.now, monotonic=lambda: self.now
        )

    def cycle(self, loads: Mapping[str, float] | None) -> None:
        """Run a cycle with metrics whose window ends now."""
        self.metrics.current = None if loads is None else metrics(loads, self.now)
        self.trial.run_cycle()

    def bind(self, node: str, pending: float, scheduler: str = "load-aware") -> None:
        pod = Pod(name="pod", node_name=node, scheduled_at=self.now, scheduler_name=scheduler)
        self.trial.add_bound(pod, self.now - pending)


def pass_time(replicas: list[Replica], until: float, in_active: Mapping[str, float] = CALM) -> None:
    """Run cycles until a time; in blocks in which the extender acts, the nodes have other loads."""
    while replicas[0].now < until:
        for replica in replicas:
            replica.now += STEP
            replica.cycle(in_active if replica.trial.acts() else CALM)


def first(schedule: TrialSchedule, active: bool) -> Block:
    """Return the first block of the trial that is active, or is not."""
    blocks = [schedule.block(BEGIN // BLOCK + number) for number in (0, 1)]
    return next(block for block in blocks if block.active == active)


def test_a_trial_follows_its_schedule_from_the_next_pair_to_its_end() -> None:
    """The extender acts in exactly the active blocks of the trial, and is in shadow before and after it."""
    replica = Replica(ConfigMaps(), now=BEGIN - BLOCK)
    acted: dict[int, set[bool]] = {}
    while replica.now < BEGIN + 14 * BLOCK:
        replica.now += STEP
        replica.cycle(CALM)
        acted.setdefault(SCHEDULE.block_at(replica.now).number, set()).add(replica.trial.acts())
    blocks = range(BEGIN // BLOCK, BEGIN // BLOCK + 12)
    assert {number for number, acts in acted.items() if acts == {True}} == {
        number for number in blocks if SCHEDULE.block(number).active
    }
    assert all(len(acts) == 1 for acts in acted.values())
    document = replica.trial.document()
    assert document is not None
    assert (document["phase"], document["pairs"]["complete"]) == ("ended", 6)
    assert "No effect" in document["verdict"]
    assert replica.announced == ["TrialEnded"]


def test_outcomes_are_those_of_the_block_after_its_first_window() -> None:
    """Metrics count if their whole window is in the block; pods count if our schedulers bound them in the block."""
    api = ConfigMaps()
    replica = Replica(api)
    replica.value = 7.5
    replica.plan = TrialPlan(SCHEDULE, LoadThresholds(80, 95), query="up")
    pass_time([replica], BEGIN)
    for minute in range(1, 32):
        replica.now = BEGIN + 60 * minute
        if minute == 2:
            replica.bind("node-2", pending=10)
            replica.bind("node-1", pending=30)
            replica.bind("node-2", pending=500, scheduler="another")
        # The windows of 5 minutes that end before minute 5 begin in the block before.
        replica.cycle({"node-1": 99.0, "node-2": 99.0} if minute < 5 else {"node-1": 10.0, "node-2": 96.0})
    (block,) = api.state["blocks"]
    assert (block["number"], block["nodes"], block["pods"]) == (BEGIN // BLOCK, 2.0, 2)
    assert block["load"] == 53.0
    assert block["outcomes"] == {
        HOT: 50.0, PLACED_HOT: 50.0, CPU_LIMIT: 50.0, MEMORY_LIMIT: 50.0, PENDING: 20.0, QUERY: 7.5,
    }  # fmt: skip


def test_gross_harm_turns_the_trial_off_within_two_blocks_and_for_good(caplog: pytest.LogCaptureFixture) -> None:
    """After one pair all replicas are in shadow, with an Event and a metric, and so is a replica that starts later."""
    api = ConfigMaps()
    replicas = [Replica(api), Replica(api)]
    pass_time(replicas, BEGIN)
    with caplog.at_level(logging.WARNING):
        pass_time(replicas, BEGIN + 2 * BLOCK + 2 * STEP, HOT_LOADS)
    stopped = api.state["stopped"]
    assert stopped["at"] <= BEGIN + 2 * BLOCK + STEP
    assert re.fullmatch(r"hot_percent .* 9.* 0.0 .*", stopped["reason"])
    assert "the field trial was stopped: the extender is in shadow" in caplog.text
    assert [replica.announced for replica in replicas].count(["TrialStopped"]) == 1
    later = Replica(api, now=replicas[0].now)
    for replica in (*replicas, later):
        pass_time([replica], BEGIN + 8 * BLOCK)
        assert not any(replica.trial.acts() for replica.now in range(BEGIN, BEGIN + 12 * BLOCK, BLOCK // 2))
        telemetry = ExtenderTelemetry()
        telemetry.watch_trial(replica.trial)
        assert b"trimaran_extender_trial_stopped 1.0" in telemetry.exposition()
        document = replica.trial.document()
        assert document is not None
        assert document["verdict"].startswith("Harm: ")


def test_a_restart_continues_the_trial() -> None:
    """A replica that starts in the middle follows the same schedule, and keeps the recorded blocks."""
    api = ConfigMaps()
    before = Replica(api)
    pass_time([before], BEGIN + 4 * BLOCK + 2 * STEP)
    after = Replica(api, now=before.now)
    pass_time([after], BEGIN + 6 * BLOCK + 2 * STEP)
    assert [block["number"] for block in api.state["blocks"]] == list(range(BEGIN // BLOCK, BEGIN // BLOCK + 6))
    assert api.state["first_pair"] == BEGIN // BLOCK // 2


@pytest.mark.parametrize("fault", ["metrics", "rules"])
def test_a_block_with_a_long_gap_does_not_count(fault: str) -> None:
    """A block without metrics for half of its time, or in which the extender could not act, is left out."""
    api = ConfigMaps()
    replica = Replica(api)
    pass_time([replica], BEGIN)
    while replica.now < BEGIN + 2 * BLOCK + 2 * STEP:
        replica.now += STEP
        is_faulty = BEGIN + BLOCK / 4 < replica.now < BEGIN + 3 * BLOCK / 4
        replica.can_act = not (fault == "rules" and is_faulty)
        replica.cycle(None if fault == "metrics" and is_faulty else CALM)
    assert [block["number"] for block in api.state["blocks"]] == [BEGIN // BLOCK + 1]


def test_without_its_record_the_trial_does_not_act(caplog: pytest.LogCaptureFixture) -> None:
    """A 403 is reported with the missing rule; when it goes, the trial begins; a lost API server ends acting."""
    api = ConfigMaps()
    api.refusal = 403
    replica = Replica(api)
    pass_time([replica], BEGIN - BLOCK / 2)
    assert 'resources: ["configmaps"]' in replica.trial.problem
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert replica.trial.document() is None
    api.refusal = 0
    active = first(SCHEDULE, active=True)
    pass_time([replica], active.start + STEP)
    assert replica.trial.problem == ""
    assert replica.trial.acts()
    api.refusal = 500
    pass_time([replica], active.start + BLOCK - STEP)
    assert replica.trial.acts()
    while not SCHEDULE.block_at(replica.now).active or replica.now < active.end + BLOCK:
        pass_time([replica], replica.now + STEP)
    assert not replica.trial.acts()


def test_blocks_are_stored_when_the_api_server_is_back() -> None:
    """A block that ends while the API server is unreachable is not lost."""
    api = ConfigMaps()
    replica = Replica(api)
    pass_time([replica], BEGIN + BLOCK - 2 * STEP)
    api.refusal = 500
    pass_time([replica], BEGIN + BLOCK + 5 * STEP)
    assert api.state["blocks"] == []
    api.refusal = 0
    pass_time([replica], BEGIN + BLOCK + 6 * STEP)
    assert [block["number"] for block in api.state["blocks"]] == [BEGIN // BLOCK]


def test_a_trial_with_changed_settings_needs_a_new_name() -> None:
    """Other settings than those that the trial was begun with are refused by name; a new name begins a new trial."""
    api = ConfigMaps()
    pass_time([Replica(api)], BEGIN)
    replica = Replica(api, TrialPlan(SCHEDULE, LoadThresholds(70, 95)))
    replica.cycle(CALM)
    assert "(hot_percent)" in replica.trial.problem
    replica.plan = TrialPlan(TrialSchedule("second", BLOCK, 6), LoadThresholds(70, 95))
    replica.cycle(CALM)
    assert replica.trial.problem == ""
    assert sorted(api.objects) == ["trimaran-trial-second", "trimaran-trial-trial"]


def test_blocks_that_are_too_short_are_refused() -> None:
    """Blocks shorter than two windows of 300 seconds leave no time that counts, so the extender does not act."""
    replica = Replica(ConfigMaps(), TrialPlan(TrialSchedule("trial", 599, 6)))
    pass_time([replica], BEGIN)
    assert replica.trial.problem == (
        "extender.trial_block_seconds = 599: must be at least twice the window of the metrics, 300 s"
    )
    replica.plan = TrialPlan(TrialSchedule("trial", 600, 6))
    replica.cycle(CALM)
    assert replica.trial.problem == ""


def test_a_foreign_config_map_is_not_overwritten() -> None:
    """A ConfigMap with other content is reported, and stays as it was."""
    api = ConfigMaps()
    foreign = {
        "kind": "ConfigMap",
        "metadata": {"name": "trimaran-trial-trial", "resourceVersion": "1"},
        "data": {"key": "value"},
    }
    api.objects["trimaran-trial-trial"] = foreign
    replica = Replica(api)
    pass_time([replica], BEGIN + BLOCK)
    assert "not the record" in replica.trial.problem
    assert api.objects["trimaran-trial-trial"] is foreign


def test_another_mode_ends_acting_at_once() -> None:
    """Without mode trial nothing is written, and the report says how to start one."""
    api = ConfigMaps()
    replica = Replica(api, plan=None)
    pass_time([replica], BEGIN + BLOCK)
    assert (api.objects, replica.trial.document(), replica.trial.acts()) == ({}, None, False)


@pytest.mark.server
@pytest.mark.usefixtures("closed_sessions")
def test_a_query_needs_one_series(prometheus_with_rules: History, caplog: pytest.LogCaptureFixture) -> None:
    """A real Prometheus returns the value of one series; several, none, and an unreachable server have no value."""
    value = PromqlValue(ExtenderSettings(), prometheus_with_rules.url)
    assert value.ask("count(instance:node_cpu:ratio)") == len(prometheus_with_rules.rules["instance:node_cpu:ratio"])
    for query, why in (("instance:node_cpu:ratio", "100 series; aggregate them"), ("absent_metric", "0 series")):
        caplog.clear()
        assert value.ask(query) is None
        assert why in vars(caplog.records[0])["error"]
    assert PromqlValue(ExtenderSettings(), "http://127.0.0.1:9").ask("up") is None


@contextmanager
def served(trial: FieldTrial) -> Iterator[str]:
    """Serve the route of a trial on a port."""
    app = Flask("extender")
    app.register_blueprint(trial_routes(trial))
    with served_app(app) as url:
        yield url


def test_the_command_shows_the_report(tmp_path: Path) -> None:
    """``trimaran extender trial`` prints the verdict and the effects, as text and as JSON, and writes a page."""
    replica, page = Replica(ConfigMaps()), tmp_path / "trial.html"
    with served(replica.trial) as url:

        def run(*arguments: str) -> tuple[int, str]:
            done = CliRunner().invoke(main, ["extender", "trial", "--extender", url, *arguments])
            return done.exit_code, done.output

        assert run() == (1, "trimaran: no field trial is running: set extender.mode = trial\n")
        pass_time([replica], BEGIN + 9 * BLOCK)
        status, text = run("--html", str(page))
        assert status == 0
        for part in ("Not finished: 4 of 6 pairs are complete", "trial, running", "hot_percent *", "Running pods do"):
            assert part in text, part
        pass_time([replica], BEGIN + 13 * BLOCK)
        assert orjson.loads(run("-o", "json")[1]) == replica.trial.document()
        assert run("--html", str(tmp_path / "none" / "trial.html"))[0] == 2
    html = page.read_text()
    assert html.count('<rect class="') == 8
    assert "Not finished: 4 of 6 pairs" in html
    assert "<script" not in html


def test_an_extender_that_cannot_measure_does_not_act(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of the measurement, in which no harm would be seen, puts the extender in shadow while it lasts."""
    replica = Replica(ConfigMaps())
    replica.cycle(CALM)
    replica.now = first(SCHEDULE, active=True).start + STEP
    replica.cycle(CALM)
    assert replica.trial.acts()
    with monkeypatch.context() as patch:
        patch.setattr(replica.trial, "_observe", lambda *_: 1 / 0)
        for _ in range(2):
            replica.trial.run_turn()
            assert not replica.trial.acts()
    replica.trial.run_turn()
    assert replica.trial.acts()
