"""Access to the Kubernetes API by service account, kubeconfig or address."""

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import requests
from support.fake_kubernetes import TOKEN, FakeKubernetes, node, node_metrics, run_fake_kubernetes
from support.servers import reply, serving

from runtime.http.credentials import InvalidApiServerConfig, UnusableToken
from runtime.http.failures import describe
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
    """Run a fake API server with one node."""
    with run_fake_kubernetes(kubernetes_folder) as fake:
        fake.nodes["a"] = node("a")
        yield fake


def in_cluster(monkeypatch: pytest.MonkeyPatch, fake: FakeKubernetes, tmp_path: Path) -> Path:
    """Make this process look like a pod; return the service account's folder."""
    host, _, port = fake.url.removeprefix("https://").rpartition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host.strip("[]"))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    account = fake.service_account(tmp_path / "serviceaccount")
    monkeypatch.setattr(kubernetes, "SERVICE_ACCOUNT", account)
    return account


def names(settings: ProviderSettings) -> list[str]:
    """Return the names of the nodes that the API lists, with access by these settings."""
    api = open_kubernetes(settings)
    try:
        return [item["metadata"]["name"] for item in api.list_items("/api/v1/nodes", Deadline.after(10))]
    finally:
        api.close()


def failure(settings: ProviderSettings) -> ProviderError:
    """Return the provider's error for a list that fails."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  whatever it is: the translation is looked at
        names(settings)
    return provider_error("test", settings.address or "", caught.value)


def problem(settings: ProviderSettings) -> str:
    with pytest.raises(SettingsError) as caught:
        open_kubernetes(settings)
    return str(caught.value)


def exec_user(script: Path, status: dict[str, Any]) -> dict[str, Any]:
    """Return a kubeconfig's user with an exec plugin that prints this status and counts its calls."""
    version = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    script.write_text(f"open({str(script) + '.calls'!r}, 'a').write('x')\nprint({answer!r})")
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(script)]}}


def test_a_pod_uses_its_service_account(fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pod finds the API by its environment, and uses the mounted token and CA."""
    in_cluster(monkeypatch, fake, tmp_path)
    assert names(ProviderSettings()) == ["a"]
    assert fake.requests[-1][2] == f"Bearer {TOKEN}"


def test_the_metrics_server_is_the_default_provider_of_a_pod(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without settings, a pod uses KubernetesMetricsServer."""
    in_cluster(monkeypatch, fake, tmp_path)
    provider = open_provider(Settings())
    assert type(provider).__name__ == "KubernetesMetricsServerProvider"
    provider.close()


def test_a_rotated_token_is_read_again(fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A token file that the kubelet renewed is read for the next request."""
    account = in_cluster(monkeypatch, fake, tmp_path)
    api = open_kubernetes(ProviderSettings())
    assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    fake.tokens = {"renewed"}
    (account / "token").write_text("renewed\n")
    assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    api.close()


def test_an_ipv6_cluster_is_reached(kubernetes_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bare IPv6 address in KUBERNETES_SERVICE_HOST gets brackets."""
    with run_fake_kubernetes(kubernetes_folder, host="::1") as fake:
        fake.nodes["six"] = node("six")
        in_cluster(monkeypatch, fake, tmp_path)
        assert names(ProviderSettings()) == ["six"]


def test_a_pod_without_a_service_account_is_an_error(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pod without a service account gets an error with automountServiceAccountToken and the settings to use."""
    (in_cluster(monkeypatch, fake, tmp_path) / "token").unlink()
    message = problem(ProviderSettings())
    assert "automountServiceAccountToken" in message
    assert "TRIMARAN_PROVIDER__TOKEN_FILE" in message


def test_settings_override_the_service_account(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A configured token replaces the pod's, and the pod's CA is still used."""
    in_cluster(monkeypatch, fake, tmp_path)
    fake.tokens = {"another"}
    assert names(ProviderSettings(token="another")) == ["a"]


def test_the_pods_token_is_not_sent_to_a_configured_address(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The pod's token is not sent to an address from the settings."""
    in_cluster(monkeypatch, fake, tmp_path)
    with pytest.raises(requests.HTTPError):
        names(ProviderSettings(address=fake.url, ca_file=fake.ca_file))
    assert fake.requests[-1][2] == ""


def test_no_api_server_is_a_settings_error() -> None:
    """Outside of a cluster, the error names the settings for the kubeconfig and the address."""
    message = problem(ProviderSettings(name="KubernetesMetricsServer"))
    assert "provider.kube_config (KUBE_CONFIG)" in message
    assert "provider.address (METRICS_PROVIDER_ADDRESS)" in message


def test_an_untrusted_server_gets_no_request(fake: FakeKubernetes) -> None:
    """Without the cluster's CA nothing is sent, unless insecure_skip_verify is set."""
    with pytest.raises(requests.exceptions.SSLError):
        names(ProviderSettings(address=fake.url, token=TOKEN))
    assert not fake.requests
    assert names(ProviderSettings(address=fake.url, token=TOKEN, insecure_skip_verify=True)) == ["a"]


def test_a_kubeconfig_without_verification_is_a_finding(fake: FakeKubernetes, tmp_path: Path) -> None:
    """insecure-skip-tls-verify of the kubeconfig gives a finding that names provider.ca_file."""
    fake.metrics["a"] = node_metrics("a", "1", "1Gi", time.time())
    path = fake.kube_config(**{"insecure-skip-tls-verify": True})
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"].pop("certificate-authority-data", None)
    path.write_text(json.dumps(config))
    provider = open_provider(Settings(provider=ProviderSettings(name="KubernetesMetricsServer", kube_config=path)))
    sample = provider.sample(Deadline.after(10))
    provider.close()
    (finding,) = sample.findings
    assert finding.kind is Kind.UNVERIFIED
    assert "provider.ca_file" in finding.message


def test_a_kubeconfig_with_a_client_certificate(fake: FakeKubernetes) -> None:
    """A client certificate of the kubeconfig is used without a token."""
    fake.tokens.clear()
    assert names(ProviderSettings(kube_config=fake.kube_config(user=fake.client_certificate()))) == ["a"]
    assert fake.requests[-1][2] == ""


def test_a_kubeconfig_with_an_exec_plugin(fake: FakeKubernetes, tmp_path: Path) -> None:
    """An exec plugin runs once, at the first request, and its token is used while it is valid."""
    script = tmp_path / "plugin.py"
    status = {"token": TOKEN, "expirationTimestamp": "2099-01-01T00:00:00Z"}
    api = open_kubernetes(ProviderSettings(kube_config=fake.kube_config(user=exec_user(script, status))))
    calls = Path(f"{script}.calls")
    assert not calls.exists()
    for _ in range(2):
        assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    assert calls.read_text() == "x"
    api.close()


def test_the_token_file_of_a_kubeconfig_is_read_at_every_request(fake: FakeKubernetes) -> None:
    """The file may end with a newline, be relative to the kubeconfig, and be rotated."""
    file = fake.folder / "token.txt"
    file.write_text("revoked\n")
    api = open_kubernetes(ProviderSettings(kube_config=fake.kube_config(user={"token": "old", "tokenFile": file.name})))
    with pytest.raises(requests.HTTPError):
        api.get("/api/v1/nodes", Deadline.after(10))
    file.write_text(f"{TOKEN}\n")
    assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    fake.tokens = {"rotated"}
    file.write_text("rotated\n")
    assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    api.close()


@pytest.mark.parametrize("content", ["two\nlines", "pa\u00dfwort", None])
def test_an_unusable_token_file_of_a_kubeconfig_is_named(fake: FakeKubernetes, content: str | None) -> None:
    """An unusable token file is named with the setting of the kubeconfig, and its content is not quoted."""
    file = fake.folder / "token.txt"
    if content is None:
        file.unlink(missing_ok=True)
    else:
        file.write_text(content, encoding="utf-8")
    api = open_kubernetes(ProviderSettings(kube_config=fake.kube_config(user={"tokenFile": str(file)})))
    with pytest.raises((UnusableToken, InvalidApiServerConfig), match=r"token\.txt.*provider\.kube_config") as caught:
        api.get("/api/v1/nodes", Deadline.after(10))
    assert content is None or content not in str(caught.value)
    api.close()


def test_an_expired_exec_token_is_renewed(fake: FakeKubernetes, tmp_path: Path) -> None:
    """An expired token of an exec plugin is renewed before the request."""
    script = tmp_path / "plugin.py"
    user = exec_user(script, {"token": TOKEN, "expirationTimestamp": "2020-01-01T00:00:00Z"})
    api = open_kubernetes(ProviderSettings(kube_config=fake.kube_config(user=user)))
    list(api.list_items("/api/v1/nodes", Deadline.after(10)))
    exec_user(script, {"token": "renewed", "expirationTimestamp": "2020-01-01T00:00:00Z"})
    fake.tokens = {"renewed"}
    assert len(list(api.list_items("/api/v1/nodes", Deadline.after(10)))) == 1
    api.close()


@pytest.mark.parametrize("way", ["token", "exec", "failed plugin"])
def test_a_kubeconfig_is_read_again_after_a_rejection(
    fake: FakeKubernetes, tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Credentials that were rejected, or that a plugin failed to return, are read again."""
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


def test_the_tls_server_name_of_a_kubeconfig_is_used(fake: FakeKubernetes) -> None:
    """The certificate must match tls-server-name of the kubeconfig instead of the address."""
    good = fake.kube_config(**{"tls-server-name": "kubernetes.default.svc"})
    assert names(ProviderSettings(kube_config=good)) == ["a"]
    bad = fake.kube_config(**{"tls-server-name": "somewhere.else"})
    with pytest.raises(requests.exceptions.SSLError):
        names(ProviderSettings(kube_config=bad))


def test_the_proxy_of_a_kubeconfig_is_used(fake: FakeKubernetes) -> None:
    """Requests go through proxy-url of the kubeconfig only; the reason of a failure names it."""
    with pytest.raises(requests.exceptions.ProxyError) as caught:
        names(ProviderSettings(kube_config=fake.kube_config(**{"proxy-url": "http://127.0.0.1:9"})))
    assert describe(caught.value).reason.endswith("(through the proxy http://127.0.0.1:9)")
    assert not fake.requests


def test_settings_override_the_kubeconfig(fake: FakeKubernetes) -> None:
    """Address, token and CA of the settings replace those of the kubeconfig."""
    path = fake.kube_config(user={"token": "wrong"}, server="https://127.0.0.1:9", **{"certificate-authority-data": ""})
    assert names(ProviderSettings(kube_config=path, address=fake.url, token=TOKEN, ca_file=fake.ca_file)) == ["a"]


def test_a_context_can_be_selected(fake: FakeKubernetes) -> None:
    """A context is selected by its name, and the error about an unknown one lists the contexts."""
    with closing(KubernetesApi(ApiServerConfig(kube_config=fake.kube_config(), context="fake"))) as api:
        assert [item["metadata"]["name"] for item in api.list_items("/api/v1/nodes", Deadline.after(10))] == ["a"]
    config = ApiServerConfig(kube_config=fake.kube_config(), context="prod", option_names={"context": "--kube-context"})
    with pytest.raises(InvalidApiServerConfig, match=r"--kube-context.* fake"):
        KubernetesApi(config)


def test_the_token_file_is_that_of_the_selected_context(tmp_path: Path) -> None:
    """With another context selected, the current one's user is not asked."""
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"token-of-{name}")
    file = tmp_path / "config"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": name, "user": {"tokenFile": name}} for name in ("one", "two")],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": name}} for name in ("one", "two")],
    }  # fmt: skip
    file.write_text(json.dumps(config))
    for context, name in (("", "one"), ("two", "two")):
        assert kubeconfig.KubeConfig(file, context, "file", "context").token() == f"Bearer token-of-{name}"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", "kind: Config", "contexts: [3]", "contexts: {}", "{contexts: [], current-context: x}", None],
)
def test_an_invalid_kubeconfig_is_an_error(tmp_path: Path, content: str | None) -> None:
    """The error about an invalid or missing kubeconfig names the setting and the file, but not its content."""
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    message = problem(ProviderSettings(kube_config=path))
    assert "provider.kube_config (KUBE_CONFIG)" in message
    assert str(path) in message


def test_a_missing_kubernetes_package_is_an_error(fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error about the missing package has the command that installs it."""
    monkeypatch.setattr(kubeconfig, "find_spec", lambda _name: None)
    assert "pip install 'kubernetes>=" in problem(ProviderSettings(kube_config=fake.kube_config()))


def test_a_kubeconfig_that_becomes_invalid_is_a_provider_error(fake: FakeKubernetes, tmp_path: Path) -> None:
    """A missing CA file of the kubeconfig is an error with the setting, and nothing is sent."""
    path = fake.kube_config(**{"certificate-authority-data": None, "certificate-authority": str(tmp_path / "gone")})
    config = json.loads(path.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    path.write_text(json.dumps(config))
    error = failure(ProviderSettings(kube_config=path))
    assert isinstance(error, ProviderAnswerError)
    assert "provider.kube_config" in str(error)


def test_a_missing_token_file_is_an_error(fake: FakeKubernetes, tmp_path: Path) -> None:
    """A missing token file is an error, not a request without a token."""
    error = failure(ProviderSettings(address=fake.url, ca_file=fake.ca_file, token_file=tmp_path / "none"))
    assert isinstance(error, ProviderRefused)
    assert "provider.token_file" in str(error)
    assert not fake.requests


@pytest.mark.parametrize("page", [None, [], 7, {}, {"items": 7}, {"items": {"a": 1}}, {"items": "none"}])
def test_a_response_that_is_not_a_list_is_an_error(monkeypatch: pytest.MonkeyPatch, page: Any) -> None:
    """A response that is not a list is an error with the address, without credentials."""
    api = open_kubernetes(ProviderSettings(address="https://me:s3cret@127.0.0.1:9"))
    monkeypatch.setattr(api, "get", lambda *_args, **_query: page)
    with pytest.raises(UnexpectedResponse, match="/api/v1/nodes") as caught:
        list(api.list_items("/api/v1/nodes", Deadline.after(1)))
    error = str(provider_error("test", api.address, caught.value))
    assert error.startswith("test at https://127.0.0.1:9: ")
    assert "provider.address" in error
    assert "s3cret" not in error


def test_a_null_list_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A null list counts as empty, and items that are not objects are skipped."""
    api = open_kubernetes(ProviderSettings(address="https://127.0.0.1:9"))
    pages = iter([{"items": None, "metadata": {"continue": "x"}}, {"items": [1, None, {"a": 1}], "metadata": None}])
    monkeypatch.setattr(api, "get", lambda *_args, **_query: next(pages))
    assert list(api.list_items("/api/v1/nodes", Deadline.after(1))) == [{"a": 1}]


def test_a_list_with_a_repeated_continue_token_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that repeats its continue token gets no further requests."""
    api = open_kubernetes(ProviderSettings(address="https://127.0.0.1:9"))
    monkeypatch.setattr(api, "get", lambda *_args, **_query: {"items": [], "metadata": {"continue": "again"}})
    with pytest.raises(TimeoutError, match="repeats a page"):
        list(api.list_items("/api/v1/nodes", Deadline.after(5)))


@pytest.mark.parametrize(("has_certificate", "connections"), [(True, 2), (False, 1)])
def test_a_rejected_certificate_gets_a_new_connection(tmp_path: Path, has_certificate: bool, connections: int) -> None:
    """After a 401, a client certificate causes a new connection that reads its file again; a token does not."""
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


def test_kubeconfigs_are_loaded_one_after_the_other(fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two accesses that are opened at once do not load at once: the package would lose one's temporary files."""
    from kubernetes import config

    file, loading, most = fake.kube_config(), [], []

    def load(*_arguments: Any, **_options: Any) -> None:
        loading.append(1)
        most.append(len(loading))
        time.sleep(0.05)  # so that another one would begin meanwhile
        loading.pop()

    monkeypatch.setattr(config, "load_kube_config", load)
    readers = [kubeconfig.KubeConfig(file, "", "file", "context") for _ in range(4)]
    threads = [threading.Thread(target=reader.read) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]
