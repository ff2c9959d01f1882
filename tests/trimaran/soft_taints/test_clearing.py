"""``trimaran nodes --clear``: what it changes, reports and tries again; tests/e2e/test_nodes_clear.py has the Lease."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from support.nodes_api import NodesApi, http_error
from support.ports import nowhere
from support.waiting import LIMIT_SECONDS

from runtime.errors import TrimaranError
from runtime.settings.loading import load
from trimaran.cli.main import main
from trimaran.cluster.settings import ClusterSection
from trimaran.soft_taints import clearing
from trimaran.soft_taints.clearing import ClearedNodes, clear
from trimaran.soft_taints.settings import NodesSettings

NAMES = tuple(f"node-{number}" for number in range(5))
OURS = {"key": "trimaran.io/hot", "value": "true", "effect": "PreferNoSchedule"}
FOREIGN = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
SETTINGS = load(NodesSettings).settings


class ClusterApi(NodesApi):
    """A fake API that also lists nodes, and refuses patches of some nodes with the errors that a test sets."""

    def __init__(self) -> None:
        super().__init__(*NAMES)
        self.refusals: dict[str, list[Exception]] = {}
        self.patched: list[str] = []

    def list_items(self, _path: str, _deadline: object) -> Iterator[dict[str, Any]]:
        yield from list(self.nodes.values())

    def send(self, method: str, path: str, *rest: Any) -> Any:
        name = path.rpartition("/")[2]
        if method == "PATCH":
            self.patched.append(name)
            if self.refusals.get(name):
                raise self.refusals[name].pop(0)
        return super().send(method, path, *rest)

    def close(self) -> None:
        pass

    def marks(self) -> set[str]:
        return {
            name for name, node in self.nodes.items()
            if OURS in node["spec"].get("taints", ()) or "load.trimaran.io/15m" in node["metadata"]["annotations"]
        }  # fmt: skip


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> ClusterApi:
    """An API with annotations on all nodes but the last, and with taints on two."""
    api = ClusterApi()
    for name in NAMES:
        ours = {} if name == NAMES[-1] else {"load.trimaran.io/15m": "cpu=40"}
        api.nodes[name]["metadata"]["annotations"] = {"theirs": "kept", **ours}
    api.taint("node-0", FOREIGN, OURS)
    api.taint("node-1", OURS)
    monkeypatch.setattr(ClusterSection, "open_api", lambda *_: api)
    return api


def refusal(message: str, status: int = 403) -> requests.HTTPError:
    error = http_error(status)
    error.response._content = f'{{"kind": "Status", "message": {message!r}}}'.replace("'", '"').encode()
    return error


def test_clear_removes_our_marks_only(api: ClusterApi) -> None:
    """``--clear`` removes our taints and annotations, leaves all others, and reports the nodes that it changed."""
    assert clear(SETTINGS) == ClearedNodes(read=5, taints=2, annotations=4)
    assert api.nodes["node-0"]["spec"]["taints"] == [FOREIGN]
    assert api.marks() == set()
    assert all(node["metadata"]["annotations"] == {"theirs": "kept"} for node in api.nodes.values())
    assert [each["involvedObject"]["name"] for each in api.events] == ["node-0", "node-1"]
    assert clear(SETTINGS) == ClearedNodes(read=5)
    assert len(api.patched) == 4


def test_a_node_that_changes_meanwhile_is_read_again(api: ClusterApi) -> None:
    """A conflict is tried again with the new version of the node; each change is counted once."""
    api.refusals["node-1"] = [http_error(409), http_error(409)]
    assert clear(SETTINGS) == ClearedNodes(read=5, taints=2, annotations=4)
    assert api.patched.count("node-1") == 3


def test_clear_stops_at_the_first_missing_right(api: ClusterApi) -> None:
    """After a 403 by RBAC no other node is tried; the message has the changes until then, and the rule."""
    message = "nodes node-1 is forbidden: User jane cannot patch resource nodes in API group  at the cluster scope"
    api.refusals["node-1"] = [refusal(message)]
    with pytest.raises(TrimaranError) as stopped:
        clear(SETTINGS)
    assert api.patched == ["node-0", "node-1"]
    assert str(stopped.value).startswith("of 5 nodes, 1 lost the taint and 1 lost their load annotations; 403")
    assert 'resources: ["nodes"], verbs: ["patch"]' in str(stopped.value)


def test_a_refusal_by_admission_costs_one_node(api: ClusterApi) -> None:
    """A webhook also answers 403; the other nodes are cleared, and the node is named."""
    api.refusals["node-1"] = [refusal("admission webhook w denied the request: frozen")] * 3
    with pytest.raises(TrimaranError, match=r"node-1: 403.*frozen"):
        clear(SETTINGS)
    assert api.marks() == {"node-1"}


def test_the_lease_is_kept_after_a_success_only(api: ClusterApi) -> None:
    """After a success the Lease keeps other replicas away for a minute; a failed run releases it."""
    clear(SETTINGS)
    ((_, lease),) = api.leases.items()
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("trimaran-nodes-clear", 60)
    api.nodes["node-2"]["metadata"]["annotations"]["load.trimaran.io/15m"] = "cpu=40"
    api.refusals["node-2"] = [http_error(500)] * 3
    with pytest.raises(TrimaranError):
        clear(SETTINGS)
    ((_, lease),) = api.leases.items()
    assert lease["spec"]["holderIdentity"] == ""


def test_clear_ends_when_the_lease_is_lost(api: ClusterApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease is renewed meanwhile; if another process has taken it, no further node is written."""
    monkeypatch.setattr(clearing, "_RENEW_SECONDS", 0.0)
    send = api.send

    def lose(method: str, path: str, *rest: Any) -> Any:
        answer = send(method, path, *rest)
        if path.endswith("node-1"):
            ((_, lease),) = api.leases.items()
            lease["spec"] |= {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
        return answer

    monkeypatch.setattr(api, "send", lose)
    with pytest.raises(TrimaranError, match=r"of 5 nodes, 2 .*Lease"):
        clear(SETTINGS)
    assert api.patched == ["node-0", "node-1"]


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_an_unreachable_api_server_ends_the_command_at_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The error names the server, the kubeconfig and the setting; ``--force`` could not help, and is not suggested."""
    server = nowhere()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {token: t}}]\ncurrent-context: x\n"
    )
    began = time.monotonic()
    done = CliRunner().invoke(main, ["nodes", "--clear", *options, "--set", f"cluster.kube_config={kubeconfig}"])
    assert (done.exit_code, time.monotonic() - began < LIMIT_SECONDS) == (1, True)
    assert f"{server} of kubeconfig {kubeconfig}; see cluster.kube_config" in done.output
    assert "use --force" not in done.output


def test_force_is_suggested_without_rights_for_the_lease(api: ClusterApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 403 on the Lease names the missing rule and ``--force``."""

    def refuse(*_: object) -> None:
        raise http_error(403)

    monkeypatch.setattr(api, "send", refuse)
    with pytest.raises(TrimaranError, match=r"Lease.*--force"):
        clear(SETTINGS)


def test_force_needs_clear() -> None:
    """``--force`` alone is a usage error."""
    done = CliRunner().invoke(main, ["nodes", "--taints", "--force"])
    assert (done.exit_code, "--force needs --clear" in done.output) == (2, True)
