"""Every controller as a process: its probes, its Lease, its rights, and its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import yaml
from control_plane.processes import children
from support.controller_api import ControllerApi, run_controller_api
from support.extending import CONFIGURATION
from support.ports import nowhere
from support.servers import TrimaranProcess, wait_until

#: Arguments of each controller, the metric that is 1 while it may act, and the name of its Lease; "" without one.
CONTROLLERS = {
    "extender": (("extender", "--config", "{config}"), "trimaran_cluster_synced", ""),
    "nodes": (("nodes", "--taints"), "trimaran_nodes_writes_here", "trimaran-nodes"),
    "rebalance": (("rebalance", "--set", "rebalance.mode=act"), "trimaran_rebalancer_leads", "trimaran-rebalancer"),
    "scheduler": (("scheduler", "--name", "ours"), "trimaran_scheduler_leads", "trimaran-standalone"),
}
LEADERS = [name for name, (_, _, lease) in CONTROLLERS.items() if lease]


@pytest.fixture
def api() -> Iterator[ControllerApi]:
    """Yield an API server of an empty cluster."""
    with run_controller_api() as api:
        yield api


@contextmanager
def running(name: str, api: ControllerApi, folder: Path) -> Iterator[TrimaranProcess]:
    """Run a controller whose watcher does not answer, until it has begun to serve."""
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(dict(CONFIGURATION)))
    words = [word.format(config=config) for word in CONTROLLERS[name][0]]
    access = ["--kube-config", str(api.kubeconfig(folder)), "--watcher", nowhere(), "--port", "0"]
    with TrimaranProcess([*words, *access], folder / f"{name}.log") as process:
        wait_for(process, "/livez", 200)
        yield process


def wait_for(process: TrimaranProcess, path: str, status: int, text: str = "") -> None:
    """Wait for a response with this status and text."""

    def has_answered() -> bool:
        response = requests.get(f"{process.url}{path}", timeout=60)
        return response.status_code == status and text in response.text

    process.wait_until(has_answered, f"{path} answers {status} {text}")


def lease_of(name: str) -> str:
    return CONTROLLERS[name][2]


def wait_to_act(name: str, process: TrimaranProcess, *, acts: bool) -> None:
    """Wait until a controller may act, or may not."""
    wait_for(process, "/metrics", 200, f"\n{CONTROLLERS[name][1]} {float(acts)}\n")


@pytest.mark.parametrize("name", CONTROLLERS)
def test_sigterm_ends_a_controller_and_releases_its_lease(name: str, api: ControllerApi, tmp_path: Path) -> None:
    """A controller that is ready and acts ends with status 0 and without a child, and its Lease has no holder."""
    with running(name, api, tmp_path) as process:
        wait_for(process, "/readyz", 200)
        wait_to_act(name, process, acts=True)
        workers = children(process.pid)
        process.terminate()
        assert process.status == 0
        assert "Traceback" not in process.output
        assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert not lease_of(name) or (api.stored.leases and not api.holder(lease_of(name)))


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_survives_an_api_server_that_is_away(name: str, api: ControllerApi, tmp_path: Path) -> None:
    """Without an API server it is alive and says why it is not ready; with one it is ready, and stays alive after."""
    api.is_away = True
    with running(name, api, tmp_path) as process:
        wait_for(process, "/readyz", 503, "onnection")
        api.is_away = False
        wait_for(process, "/readyz", 200)
        api.is_away = True
        assert requests.get(f"{process.url}/livez", timeout=60).ok
        assert "Traceback" not in process.output


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_without_rights_names_them(name: str, api: ControllerApi, tmp_path: Path) -> None:
    """While the account may not list nodes, /readyz names the rule; the controller goes on once it may."""
    api.refused = {"/api/v1/nodes": 403}
    with running(name, api, tmp_path) as process:
        wait_for(process, "/readyz", 503, "needs the rule")
        assert requests.get(f"{process.url}/livez", timeout=60).ok
        api.refused = {}
        wait_for(process, "/readyz", 200)


@pytest.mark.parametrize("name", LEADERS)
def test_a_lease_that_cannot_be_acquired_is_not_ready(name: str, api: ControllerApi, tmp_path: Path) -> None:
    """/readyz has the reason and the setting, the log one line, not one for each attempt; a remedy makes it ready."""
    api.refused = {"/leases": 404}
    with running(name, api, tmp_path) as process:
        wait_for(process, "/readyz", 503, "create the namespace trimaran, or set cluster.lease_namespace")
        api.refused = {"/leases": 403}
        wait_for(process, "/readyz", 503, "grant the right to get, create and update leases in trimaran, or set")
        assert process.output.count("create the namespace") == 1
        api.refused = {}
        wait_for(process, "/readyz", 200)


@pytest.mark.parametrize("name", LEADERS)
def test_a_controller_that_lost_its_lease_waits_for_it(name: str, api: ControllerApi, tmp_path: Path) -> None:
    """While another replica holds the Lease it does not act, but is alive and ready; it acts again once that ends."""
    with running(name, api, tmp_path) as process:
        wait_to_act(name, process, acts=True)
        api.give_lease(lease_of(name), "another")
        wait_to_act(name, process, acts=False)
        wait_for(process, "/readyz", 200)
        wait_for(process, "/livez", 200)
        api.give_lease(lease_of(name), "")
        wait_to_act(name, process, acts=True)
        wait_until(lambda: api.holder(lease_of(name)) not in {"", "another"}, "it holds the Lease")
