"""Events about pods: their form, repetitions, and the bound on their rate."""

import pytest
from support.binding_api import BindingApi, refusal

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.service.pod_events import PodEvent, PodEventWriter

POD = Pod("web", uid="uid-1")


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def written(api: BindingApi, *events: PodEvent, clock: Clock | None = None, per_second: float = 200) -> PodEventWriter:
    """Write Events, wait for them, and return the writer."""
    writer = PodEventWriter(api, lambda: True, "ours", per_second, clock or Clock())
    for event in events:
        writer.write(event)
    writer.start()
    assert writer.stop()
    return writer


def test_an_event_has_the_fields_that_kubectl_shows() -> None:
    """It regards the pod with its UID, and names the scheduler."""
    api = BindingApi()
    written(api, PodEvent(POD, "Scheduled", "Binding", "x" * 2000, related=Pod("other", uid="uid-2")))
    assert api.sent == ["POST /apis/events.k8s.io/v1/namespaces/default/events"]
    (event,) = api.bodies
    assert event["regarding"] == {
        "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web", "uid": "uid-1",
    }  # fmt: skip
    assert event["related"]["uid"] == "uid-2"
    assert (event["reason"], event["action"], event["type"]) == ("Scheduled", "Binding", "Normal")
    assert event["reportingController"] == "ours"
    assert len(event["note"]) == 1024


def test_the_same_event_is_written_once_in_five_minutes() -> None:
    """A pod that is tried every second causes one Event."""
    api, clock = BindingApi(), Clock()
    writer = PodEventWriter(api, lambda: True, "ours", 200, clock)
    for second in range(601):
        clock.now = float(second)
        writer.write(PodEvent(POD, "FailedScheduling", "Scheduling", "no room", "Warning"))
    writer.start()
    assert writer.stop()
    assert len(api.sent) == 3
    assert writer.dropped == 0


def test_events_beyond_the_rate_are_dropped_and_counted() -> None:
    """A burst of five seconds of the rate is written."""
    api = BindingApi()
    events = [PodEvent(Pod(f"web-{number}"), "Scheduled", "Binding", "") for number in range(80)]
    writer = written(api, *events, per_second=10)
    assert (len(api.sent), writer.dropped) == (50, 30)


@pytest.mark.parametrize(("status", "sent"), [(403, 1), (404, 3), (500, 3)])
def test_a_refused_event_is_dropped(status: int, sent: int) -> None:
    """After a 403 no more are sent; other failures concern one Event."""
    api = BindingApi()
    api.before = lambda _method, _path: refusal(status)
    events = [PodEvent(Pod(f"web-{number}"), "Scheduled", "Binding", "") for number in range(3)]
    writer = written(api, *events)
    assert (len(api.sent), writer.dropped) == (sent, 3)
