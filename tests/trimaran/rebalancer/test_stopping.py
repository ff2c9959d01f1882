"""``trimaran rebalance stop`` and ``resume``: the brake in the ledger, and the removal of notes."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from support.moving_api import MovingApi
from support.rebalancing import hot_and_cold

from trimaran.cli.main import main
from trimaran.cluster.target_note import TargetNote
from trimaran.rebalancer.brake import BrakeReason
from trimaran.rebalancer.settings import RebalanceSection


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
    monkeypatch.setattr(RebalanceSection, "open_api", lambda _self, _section: api)
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
    assert call("stop", "--clean")[1].endswith("; the notes on 1 pods are removed\n")
    assert api.world.pods[0]["metadata"]["annotations"] == {}


def test_resume_releases_the_brake(api: StoppedApi) -> None:
    """Resume releases the brake once; without one it says so and writes nothing."""
    call("stop")
    assert call("resume") == (0, "trimaran: the brake is released\n")
    assert api.ledger().brake is None
    sent = list(api.sent)
    assert call("resume") == (0, "trimaran: the brake was not set\n")
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


def test_a_refused_stop_is_an_error(api: StoppedApi) -> None:
    """Without the right to write the ConfigMap the command fails with the API server's reason."""
    api.fault = lambda method, _path: (403, {"message": "forbidden"}, {}) if method != "GET" else None
    status, output = call("stop")
    assert status == 1
    assert "ConfigMap trimaran/trimaran-rebalancer cannot be written: 403" in output
