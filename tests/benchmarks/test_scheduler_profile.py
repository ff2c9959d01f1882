"""The scheduler's profile shows what burns processor time and what waits, and adds up to the time of the process."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.binding_api import BindingApi
from support.scripts import imported
from support.waiting import wait_until

from runtime.kubernetes.objects import Node, Pod, ResourceList
from scoring import NodeTable
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import FilterPlugin
from trimaran.scheduler.profiles.configuration import default_document, read_setup
from trimaran.scheduler.service.binder import Binder
from trimaran.scheduler.service.event_queue import EventQueue, PodFeed
from trimaran.scheduler.service.executor import DecisionExecutor
from trimaran.scheduler.service.pod_events import PodEventWriter
from trimaran.scheduler.service.pod_status_writer import StatusWriter
from trimaran.scheduler.service.scheduling_loop import SchedulingLoop
from trimaran.scheduler.service.telemetry import SchedulerTelemetry

PODS, BURNT_MS, HELD_MS = 20, 20.0, 100.0


def burn(milliseconds: float) -> None:
    """Use the processor of this thread for so long."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass


class Burning(FilterPlugin):
    """Filter that allows each node, and takes long for it."""

    name = "Burning"

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> None:
        burn(BURNT_MS)


class BurningApi(BindingApi):
    """Fake API that takes the processor of its callers."""

    def send(self, method: str, path: str, deadline: object, body: Any = None, content_type: str = "") -> Any:
        burn(BURNT_MS / 2 if path.endswith("/binding") else BURNT_MS / 4)
        return super().send(method, path, deadline, body, content_type)


@pytest.fixture
def scripts() -> Iterator[ModuleType]:
    """Return the module of the profile."""
    with imported("scheduler_profile", Path(__file__).parents[2] / "benchmarks") as module:
        yield module


@pytest.fixture
def profile(scripts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a profile of this process."""
    profile = scripts.Profile()
    profile.install(monkeypatch.setattr)
    return profile


def place(profile: Any) -> bytes:
    """Place pods with a filter and an API that burn processor time; return the report."""
    api, event_queue, telemetry = BurningApi(), EventQueue(), SchedulerTelemetry()
    setup = read_setup(default_document("ours"))
    setup = replace(setup, profiles=tuple(replace(each, filters=(Burning(),)) for each in setup.profiles))
    scheduler = setup.scheduler(seed=0)
    scheduler.replace_nodes([Node("node-0", allocatable=ResourceList({"cpu": 4000, "pods": 110}))], 0.0)
    events = PodEventWriter(api, lambda: True, "ours")
    statuses = StatusWriter([api], lambda: True, events.write)
    executor = DecisionExecutor(Binder([api], lambda: True), statuses, events, event_queue, telemetry, ["ours"])
    loop = SchedulingLoop(scheduler, event_queue, executor, lambda: True, lambda: None)
    feed = PodFeed(event_queue, executor.observe)
    executor.start()
    loop.start()
    try:
        profile.start()
        for number in range(PODS):
            api.add(f"web-{number}", f"uid-{number}")
            metadata = {"name": f"web-{number}", "namespace": "default", "uid": f"uid-{number}"}
            feed.put({"kind": "Pod", "metadata": metadata, "spec": {"schedulerName": "ours", "containers": []}})
        wait_until(lambda: sum(path.endswith("/events") for path in api.sent) == PODS, "each pod has its Event")
        report: bytes = profile.report()
        return report
    finally:
        loop.stop()
        assert executor.stop()


def test_stages_that_burn_processor_time_are_seen(scripts: ModuleType, profile: Any) -> None:
    """A filter, the Bindings and the Events have the processor time that they burn; all stages have that of all."""
    before = time.process_time()
    rows = scripts.rows(place(profile), PODS)
    used = 1000 * (time.process_time() - before)
    by_stage = {(row.thread, row.stage): row.processor for row in rows}
    assert by_stage["scheduling", "Filter Burning"] == pytest.approx(BURNT_MS, rel=0.1)
    assert by_stage["bind", "bind"] == pytest.approx(BURNT_MS / 2, rel=0.2)
    assert by_stage["events", "events"] == pytest.approx(BURNT_MS / 4, rel=0.2)
    assert max(by_stage, key=by_stage.__getitem__) == ("scheduling", "Filter Burning")
    assert sum(by_stage.values()) == pytest.approx(used / PODS, rel=0.1)
    assert abs(by_stage["", "outside of these threads"]) < 0.1 * sum(by_stage.values())


def test_a_call_that_holds_the_lock_makes_the_probe_late(profile: Any, scripts: ModuleType) -> None:
    """The probe gets the lock only after a long call into C, and a stage that sleeps waits without the processor."""
    profile.start()
    began = time.perf_counter()
    while (held := time.perf_counter() - began) < HELD_MS / 1000:
        began = time.perf_counter()
        sum(range(10_000_000))
    profile.timed(lambda: time.sleep(HELD_MS / 1000), "planted")()
    report = profile.report()
    late = scripts.orjson.loads(report)["late"]
    assert max(late) > 1000 * held / 2
    (planted,) = (row for row in scripts.rows(report, 1) if row.stage == "planted")
    assert planted.waiting >= HELD_MS - 10
    assert planted.processor < HELD_MS / 4
