"""The ways to the Kubernetes API: service account, kubeconfig, address."""

import json
import logging
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import requests
from support.fake_kubernetes import TOKEN, FakeKubernetes, node, node_metrics, run_fake_kubernetes
from support.servers import reply, serving

from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes import api as kubernetes
from runtime.kubernetes import kubeconfig
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, SettingsError
from watcher.findings import Kind
from watcher.providers.base import open_provider
from watcher.providers.session import open_kubernetes, provider_error
from watcher.settings import ProviderSettings, Settings


@pytest.fixture
def fake(kubernetes_folder: Path) -> Iterator[FakeKubernetes]:
    """A cluster of one node."""
    with run_fake_kubernetes(kubernetes_folder) as fake:
        fake.nodes["a"] = node("a")
        yield fake


def in_cluster(monkeypatch: pytest.MonkeyPatch, fake: FakeKubernetes, tmp_path: Path) -> Path:
    """Set up this process as a pod; return the service account's folder."""
    host, _, port = fake.url.removeprefix("https://").rpartition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host.strip("[]"))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    account = fake.service_account(tmp_path / "serviceaccount")
    monkeypatch.setattr(kubernetes, "SERVICE_ACCOUNT", account)
    return account


def names(settings: ProviderSettings, context: str = "") -> list[str]:
    """Return the nodes an API that was found by the settings lists."""
    api = open_kubernetes(settings, context)
    try:
        return [item["metadata"]["name"] for item in api.list_items("/api/v1/nodes", Deadline.after(10))]
    finally:
        api.close()


def failure(settings: ProviderSettings) -> ProviderError:
    """Return what a provider makes of a failed list."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  whatever it is: the translation is looked at
        names(settings)
    return provider_error("test", settings.address or "", caught.value)


def problem(settings: ProviderSettings, context: str = "") -> str:
    with pytest.raises(SettingsError) as caught:
        open_kubernetes(settings, context)
    return str(caught.value)


def exec_user(script: Path, status: dict[str, Any]) -> dict[str, Any]:
    """Return a kubeconfig's user whose plugin prints this status, and counts its calls beside it."""
    version = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    script.write_text(f"open({str(script) + '.calls'!r}, 'a').write('x')\nprint({answer!r})")
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(script)]}}


def test_a_pod_is_let_in_by_its_service_account(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a pod the environment, the mounted token and the mounted CA are all it takes."""
    in_cluster(monkeypatch, fake, tmp_path)
    assert names(ProviderSettings()) == ["a"]
    assert fake.requests[-1][2] == f"Bearer {TOKEN}"


def test_the_metrics_server_is_a_pods_provider(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without any setting, a pod opens KubernetesMetricsServer, found by its entry point."""
    in_cluster(monkeypatch, fake, tmp_path)
    provider = open_provider(Settings())
    assert type(provider).__name__ == "KubernetesMetricsServerProvider"
    provider.close()


def test_a_rotated_token_is_read_again(fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kubelet renews the token's file; the next request carries the new one."""
    account = in_cluster(monkeypatch, fake, tmp_path)
    api = open_kubernetes(ProviderSettings())
    assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    fake.tokens = {"renewed"}
    (account / "token").write_text("renewed\n")
    assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    api.close()


def test_an_ipv6_cluster_is_reached(kubernetes_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KUBERNETES_SERVICE_HOST holds a bare IPv6 address; it goes into brackets."""
    with run_fake_kubernetes(kubernetes_folder, host="::1") as fake:
        fake.nodes["six"] = node("six")
        in_cluster(monkeypatch, fake, tmp_path)
        assert names(ProviderSettings()) == ["six"]


def test_a_pod_without_service_account_is_told(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """automountServiceAccountToken: false is named at construction, with the settings to use instead."""
    (in_cluster(monkeypatch, fake, tmp_path) / "token").unlink()
    message = problem(ProviderSettings())
    assert "automountServiceAccountToken" in message
    assert "TRIMARAN_PROVIDER__TOKEN_FILE" in message


def test_settings_win_over_the_service_account(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A token that is set is sent instead of the pod's, and its CA still verifies the server."""
    in_cluster(monkeypatch, fake, tmp_path)
    fake.tokens = {"another"}
    assert names(ProviderSettings(token="another")) == ["a"]


def test_the_pods_token_is_not_sent_elsewhere(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """To an address from the settings goes only a token from the settings."""
    in_cluster(monkeypatch, fake, tmp_path)
    with pytest.raises(requests.HTTPError):
        names(ProviderSettings(address=fake.url, ca_file=fake.ca_file))
    assert fake.requests[-1][2] == ""


def test_nothing_to_go_by_is_a_settings_error() -> None:
    """Outside a cluster the two settings that lead to one are named with their variables."""
    message = problem(ProviderSettings(name="KubernetesMetricsServer"))
    assert "provider.kube_config (KUBE_CONFIG)" in message
    assert "provider.address (METRICS_PROVIDER_ADDRESS)" in message


def test_a_server_that_is_not_trusted_is_refused(fake: FakeKubernetes) -> None:
    """Without the cluster's CA nothing is sent; insecure_skip_verify is a choice."""
    with pytest.raises(requests.exceptions.SSLError):
        names(ProviderSettings(address=fake.url, token=TOKEN))
    assert not fake.requests
    assert names(ProviderSettings(address=fake.url, token=TOKEN, insecure_skip_verify=True)) == ["a"]


def test_a_kubeconfig_with_a_token(fake: FakeKubernetes) -> None:
    """Server, CA and token come from the kubeconfig."""
    assert names(ProviderSettings(kube_config=fake.kube_config())) == ["a"]


def test_a_kubeconfig_that_trusts_anyone_is_a_finding(fake: FakeKubernetes, tmp_path: Path) -> None:
    """insecure-skip-tls-verify of the kubeconfig is used, and said with the setting that does better."""
    fake.metrics["a"] = node_metrics("a", "1", "1Gi", time.time())
    path = fake.kube_config(**{"insecure-skip-tls-verify": True})
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"].pop("certificate-authority-data", None)
    path.write_text(json.dumps(config))
    provider = open_provider(Settings(provider=ProviderSettings(name="KubernetesMetricsServer", kube_config=path)))
    taken = provider.sample(Deadline.after(10))
    provider.close()
    (finding,) = taken.findings
    assert finding.kind is Kind.UNVERIFIED
    assert "provider.ca_file" in finding.message


def test_a_kubeconfig_with_a_client_certificate(fake: FakeKubernetes) -> None:
    """A certificate and key in the kubeconfig identify us, without any token."""
    fake.tokens.clear()
    assert names(ProviderSettings(kube_config=fake.kube_config(user=fake.client_certificate()))) == ["a"]
    assert fake.requests[-1][2] == ""


def test_a_kubeconfig_with_an_exec_plugin(fake: FakeKubernetes, tmp_path: Path) -> None:
    """The plugin is run once, not at construction, and its token sent while it is valid."""
    script = tmp_path / "plugin.py"
    status = {"token": TOKEN, "expirationTimestamp": "2099-01-01T00:00:00Z"}
    api = open_kubernetes(ProviderSettings(kube_config=fake.kube_config(user=exec_user(script, status))))
    calls = Path(f"{script}.calls")
    assert not calls.exists()
    for _ in range(2):
        assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    assert calls.read_text() == "x"
    api.close()


def test_an_expired_exec_token_is_renewed(fake: FakeKubernetes, tmp_path: Path) -> None:
    """A token whose time is over is asked for again before the request."""
    script = tmp_path / "plugin.py"
    user = exec_user(script, {"token": TOKEN, "expirationTimestamp": "2020-01-01T00:00:00Z"})
    api = open_kubernetes(ProviderSettings(kube_config=fake.kube_config(user=user)))
    list(api.list_items("/api/v1/nodes", Deadline.after(10)))
    exec_user(script, {"token": "renewed", "expirationTimestamp": "2020-01-01T00:00:00Z"})
    fake.tokens = {"renewed"}
    assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    api.close()


@pytest.mark.parametrize("way", ["token", "exec", "failed plugin"])
def test_a_kubeconfig_is_read_anew_after_a_refusal(
    fake: FakeKubernetes, tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Credentials that are refused, or that a plugin failed to give, do not stay for ever."""
    script = tmp_path / "plugin.py"

    def user(token: str) -> dict[str, Any]:
        return {"token": token} if way == "token" else exec_user(script, {"token": token})

    path = fake.kube_config(user=user("revoked"))
    if way == "failed plugin":
        script.write_text("raise SystemExit('no network')")
    api = open_kubernetes(ProviderSettings(kube_config=path))
    with caplog.at_level(logging.CRITICAL), pytest.raises(requests.HTTPError) as caught:
        api.get("/api/v1/nodes", Deadline.after(10))
    assert caught.value.response.status_code == (403 if way == "failed plugin" else 401)
    assert api.sent_credentials(caught.value) == (way != "failed plugin")
    fake.kube_config(user=user(TOKEN))
    assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    api.close()


def test_a_server_name_for_tls_is_used(fake: FakeKubernetes) -> None:
    """tls-server-name of the kubeconfig is what the certificate must be for, not the address."""
    good = fake.kube_config(**{"tls-server-name": "kubernetes.default.svc"})
    assert names(ProviderSettings(kube_config=good)) == ["a"]
    bad = fake.kube_config(**{"tls-server-name": "somewhere.else"})
    with pytest.raises(requests.exceptions.SSLError):
        names(ProviderSettings(kube_config=bad))


def test_a_proxy_of_the_kubeconfig_is_used(fake: FakeKubernetes) -> None:
    """proxy-url of the kubeconfig is asked, and nobody else."""
    with pytest.raises(requests.exceptions.ProxyError):
        names(ProviderSettings(kube_config=fake.kube_config(**{"proxy-url": "http://127.0.0.1:9"})))
    assert not fake.requests


def test_settings_win_over_the_kubeconfig(fake: FakeKubernetes) -> None:
    """Address, token and CA from the settings stand instead of the kubeconfig's."""
    path = fake.kube_config(user={"token": "wrong"}, server="https://127.0.0.1:9", **{"certificate-authority-data": ""})
    assert names(ProviderSettings(kube_config=path, address=fake.url, token=TOKEN, ca_file=fake.ca_file)) == ["a"]


def test_another_context_can_be_named(fake: FakeKubernetes) -> None:
    """metrics_server.kube_context selects; a name that is not there is answered with those that are."""
    path = fake.kube_config()
    assert names(ProviderSettings(kube_config=path), "fake") == ["a"]
    message = problem(ProviderSettings(kube_config=path), "prod")
    assert "metrics_server.kube_context" in message
    assert "it has: fake" in message


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "kind: Config", "contexts: [3]", "contexts: {}", "{contexts: [], current-context: x}"]
)
def test_a_file_that_is_no_kubeconfig_is_told(tmp_path: Path, content: str) -> None:
    """Whatever the file holds, the error is about the setting and does not quote the file."""
    path = tmp_path / "config"
    path.write_text(content)
    message = problem(ProviderSettings(kube_config=path))
    assert "provider.kube_config (KUBE_CONFIG)" in message
    assert str(path) in message


def test_a_kubeconfig_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A missing file is named with the system's reason."""
    message = problem(ProviderSettings(kube_config=tmp_path / "none"))
    assert "No such file" in message


def test_the_missing_extra_is_told(fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, a kubeconfig is answered with the command that installs it."""
    monkeypatch.setattr(kubeconfig, "find_spec", lambda _name: None)
    assert "pip install kubernetes" in problem(ProviderSettings(kube_config=fake.kube_config()))


def test_a_kubeconfig_that_breaks_later_is_a_provider_error(fake: FakeKubernetes, tmp_path: Path) -> None:
    """A CA file that the kubeconfig names and that is gone is told with the setting, and nothing is sent."""
    path = fake.kube_config(**{"certificate-authority-data": None, "certificate-authority": str(tmp_path / "gone")})
    config = json.loads(path.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    path.write_text(json.dumps(config))
    error = failure(ProviderSettings(kube_config=path))
    assert isinstance(error, ProviderAnswerError)
    assert "provider.kube_config" in str(error)


def test_a_token_file_that_is_gone_is_refused(fake: FakeKubernetes, tmp_path: Path) -> None:
    """A token file that cannot be read is an error of its own and not an anonymous request."""
    error = failure(ProviderSettings(address=fake.url, ca_file=fake.ca_file, token_file=tmp_path / "none"))
    assert isinstance(error, ProviderRefused)
    assert "provider.token_file" in str(error)
    assert not fake.requests


@pytest.mark.parametrize("page", [None, [], 7, {}, {"items": 7}, {"items": {"a": 1}}, {"items": "none"}])
def test_no_list_is_an_error(monkeypatch: pytest.MonkeyPatch, page: Any) -> None:
    """JSON of another shape is told with the address; credentials in it are not shown."""
    api = open_kubernetes(ProviderSettings(address="https://me:s3cret@127.0.0.1:9"))
    monkeypatch.setattr(api, "get", lambda *_args, **_query: page)
    with pytest.raises(UnexpectedResponse, match="is not a list") as caught:
        list(api.list_items("/api/v1/nodes", Deadline.after(1)))
    error = str(provider_error("test", api.address, caught.value))
    assert error.startswith("test at https://127.0.0.1:9: the response of /api/v1/nodes is not a list; is provider.address")
    assert "s3cret" not in error


def test_a_null_list_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go writes an empty list as null; items that are no objects are left out."""
    api = open_kubernetes(ProviderSettings(address="https://127.0.0.1:9"))
    pages = iter([{"items": None, "metadata": {"continue": "x"}}, {"items": [1, None, {"a": 1}], "metadata": None}])
    monkeypatch.setattr(api, "get", lambda *_args, **_query: next(pages))
    assert list(api.list_items("/api/v1/nodes", Deadline.after(1))) == [{"a": 1}]


def test_a_list_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers every page with the same continue token does not hold us."""
    api = open_kubernetes(ProviderSettings(address="https://127.0.0.1:9"))
    monkeypatch.setattr(api, "get", lambda *_args, **_query: {"items": [], "metadata": {"continue": "again"}})
    with pytest.raises(TimeoutError, match="does not end"):
        list(api.list_items("/api/v1/nodes", Deadline.after(5)))


@pytest.mark.parametrize(("has_certificate", "connections"), [(True, 2), (False, 1)])
def test_a_refused_certificate_gets_another_connection(tmp_path: Path, has_certificate: bool, connections: int) -> None:
    """Its file may hold a new one by now, which only another handshake shows; a token needs none."""
    own, ports = tmp_path / "own.pem", []
    own.write_text("")

    def refuse(handler: BaseHTTPRequestHandler) -> None:
        ports.append(handler.client_address[1])
        handler.protocol_version = "HTTP/1.1"
        reply(handler, {"message": "Unauthorized"}, 401)
        handler.close_connection = False

    with serving(refuse) as fake:
        api = KubernetesApi(
            ApiServerConfig(address=fake.url, token="mine", certificate=str(own) if has_certificate else None)
        )
        for _ in range(2):
            with pytest.raises(requests.HTTPError, match="401"):
                api.get("/api", Deadline.after(5))
        api.close()
    assert len(set(ports)) == connections
