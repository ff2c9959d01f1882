"""``trimaran rebalance stop`` and ``resume``: the brake in the ledger, and the removal of notes."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from support.moving_api import MovingApi
from support.rebalancing import NOW, hot_and_cold

from trimaran.cli.main import main
from trimaran.cluster.settings import ClusterSection
from trimaran.cluster.target_note import TargetNote
from trimaran.rebalancer import stopping
from trimaran.rebalancer.brake import BrakeReason
from trimaran.rebalancer.moves import MoveRecord


class StoppedApi(MovingApi):
    """A fake API that also lists pods."""

    def list_items(self, path: str, _deadline: object) -> Iterator[dict[str, Any]]:
        assert path == "/api/v1/pods"
        yield from self.world.pods

    def close(self) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> StoppedApi:
    """The API that the commands use, with a note on a pod that was left behind."""
    api = StoppedApi(hot_and_cold())
    api.world.pods[0]["metadata"]["annotations"] = TargetNote("node-idle", "node-hot", 1.8e9).annotations()
    monkeypatch.setattr(ClusterSection, "open_api", lambda _self: api)
    return api


def call(*arguments: str) -> tuple[int, str]:
    """Run a subcommand of ``trimaran rebalance``; return its status and output."""
    result = CliRunner().invoke(main, ["rebalance", *arguments])
    return result.exit_code, result.output


def test_a_stop_sets_the_brake_and_cleans(api: StoppedApi) -> None:
    """Stop sets the brake without a running rebalancer; with --clean no note stays, and the caps are kept."""
    assert call("stop") == (0, "trimaran: stopped; the replacements of 0 evicted pods are awaited\n")
    brake = api.ledger().brake
    assert brake is not None
    assert brake.reason is BrakeReason.STOPPED
    assert api.world.pods[0]["metadata"]["annotations"]
    assert call("stop", "--clean")[1].endswith("; the annotations of 1 pods are removed\n")
    assert api.world.pods[0]["metadata"]["annotations"] == {}


def test_resume_releases_the_brake(api: StoppedApi) -> None:
    """Resume releases the brake once; without one it says where it looked, and writes nothing."""
    call("stop")
    assert call("resume") == (0, "trimaran: the brake is released\n")
    assert api.ledger().brake is None
    sent = list(api.sent)
    status, text = call("resume")
    assert (status, "not set in the ConfigMap trimaran/" in text, "cluster.lease_namespace" in text) == (0, True, True)
    assert api.sent == sent


def test_a_stop_wins_against_the_leader(api: StoppedApi) -> None:
    """If the leader writes the ledger at the same time, the stop reads it again, and keeps its moves."""
    store, original, raced = api.store, api.send, []

    def send(method: str, *arguments: Any) -> Any:
        if method in {"PUT", "POST"} and not raced:
            raced.append(1)
            store.write(store.read())
        return original(method, *arguments)

    store.write(store.read())
    api.send = send  # type: ignore[method-assign]
    assert call("stop")[0] == 0
    assert api.ledger().brake is not None


@pytest.mark.parametrize(
    ("method", "status", "arguments", "named"),
    [
        ("POST", 403, ("stop",), "ConfigMap trimaran/trimaran-rebalancer "),
        ("POST", 403, ("stop",), "cluster.lease_namespace"),
        ("PATCH", 403, ("stop", "--clean"), "default/app-a-hot"),  # the pod whose note is still there
        ("POST", 409, ("stop",), "by others during each attempt; run the command again"),
    ],
)
def test_a_refused_stop_is_an_error(
    api: StoppedApi, method: str, status: int, arguments: tuple[str, ...], named: str
) -> None:
    """Without a right, and if the ledger is written between each read and write, the command fails with the reason."""
    api.fault = lambda sent, _path: (status, {"message": "refused"}, {}) if sent == method else None
    code, output = call(*arguments)
    assert (code, named in output) == (1, True), output


def test_a_clean_up_leaves_other_pods_alone(api: StoppedApi) -> None:
    """Pods without a note, and pods that terminate, whose note the extender needs, are not changed."""
    ending = api.world.pods[1]["metadata"]
    note = TargetNote("node-idle", "node-hot", 1.8e9).annotations()
    ending.update(annotations=dict(note), deletionTimestamp="2026-11-25T12:00:00Z")
    assert call("stop", "--clean")[0] == 0
    assert ending["annotations"] == note
    assert [each for each in api.sent if each.startswith("PATCH")] == ["PATCH namespaces/default/pods/app-a-hot"]


def test_a_clean_up_waits_for_writes_that_are_under_way(api: StoppedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A move that is recorded as planned may be about to write its note: the clean-up waits for that, else not."""
    slept: list[float] = []
    monkeypatch.setattr(stopping.time, "sleep", slept.append)
    monkeypatch.setattr(stopping.time, "time", lambda: NOW)
    call("stop", "--clean")
    assert slept == []
    move = MoveRecord(
        "uid", "default", "web-1", "Deployment", "web", "a", "uid", "node-hot", "node-idle", planned_at=NOW - 4
    )
    store = api.store
    store.write(store.read().put(move))
    call("stop")
    assert slept == []
    call("stop", "--clean")
    assert slept == [6.0]


@pytest.mark.parametrize("command", ["stop", "resume"])
def test_a_ledger_that_cannot_be_read_is_an_error(api: StoppedApi, command: str) -> None:
    """Neither command takes an unreadable ledger, or no answer, for an empty one, which would reset the caps."""
    api.fault = lambda method, _path: (500, {"message": "etcd is slow"}, {}) if method == "GET" else None
    status, output = call(command)
    assert (status, api.sent) == (1, [])
    assert "ConfigMap trimaran/trimaran-rebalancer " in output
    api.fault = lambda _method, _path: None
    body = {"kind": "ConfigMap", "metadata": {"name": "trimaran-rebalancer"}, "data": {"ledger": "text"}}
    api.send("POST", "/api/v1/namespaces/trimaran/configmaps", None, body)
    status, output = call(command)
    assert (status, api.sent) == (1, ["POST configmaps"])
    assert "Delete it to begin with empty caps" in output
