"""Tests of HTTP access to providers: failures of servers and environments, on real sockets."""

import socket
import ssl
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import requests
from support.certificates import Authority
from support.ports import closed_port, nowhere
from support.servers import reply, serving
from support.waiting import LIMIT_SECONDS

from runtime.http import session as transport_session
from runtime.kubernetes import api as kubernetes
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.providers.session import ProviderSession, bearer, provider_error
from watcher.settings import ProviderSettings


def ask(address: str, timeout: float = 5, **options: Any) -> requests.Response:
    """Get an address through a session; failures are translated into ProviderErrors."""
    settings = ProviderSettings(name="Prometheus", address=address, **options)
    with closing(ProviderSession(settings, bearer(settings))) as session:
        try:
            return session.get(address, timeout=timeout)
        except Exception as error:
            raise provider_error("Prometheus", address, error) from error


def keep_alive(handler: BaseHTTPRequestHandler) -> None:
    """Respond, and keep the connection open for another request."""
    handler.protocol_version, handler.close_connection = "HTTP/1.1", False
    reply(handler, {})


def test_close_closes_idle_connections() -> None:
    """Closing a session closes its connections, also while somebody keeps their pool, as the frames of errors do."""
    with serving(keep_alive) as fake:
        session = ProviderSession(ProviderSettings(name="Prometheus", address=fake.url), bearer(ProviderSettings()))
        session.get(fake.url)
        pools = session.get_adapter(fake.url).poolmanager.pools
        (pool,) = (pools[key] for key in pools.keys())  # noqa: SIM118  urllib3's container cannot be iterated
        (connection,) = (each for each in pool.pool.queue if each is not None)
        assert connection.sock is not None
        session.close()
        assert connection.sock is None


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, ProviderRefused, "refuses the credentials: 401 Unauthorized: because (provider.token)"),
        (403, ProviderRefused, "refuses the credentials: 403 Forbidden: because (provider.token)"),
        (404, ProviderAnswerError, "404 Not Found: because; is provider.address right?"),
        (422, ProviderAnswerError, "422 "),
        (429, ProviderUnavailable, "429 Too Many Requests: because"),
        (500, ProviderUnavailable, "500 Internal Server Error: because"),
        (503, ProviderUnavailable, "503 Service Unavailable: because"),
    ],
)
@pytest.mark.parametrize("said", ["because", {"code": "gone", "message": "because"}])
def test_statuses_become_errors(status: int, kind: type[ProviderError], words: str, said: object) -> None:
    """Each status becomes its kind of error, with the server's reason and the setting to change."""
    with serving(lambda handler: reply(handler, {"error": said}, status)) as fake, pytest.raises(kind) as caught:
        ask(fake.url)
    assert str(caught.value).startswith(f"Prometheus at {fake.url}")
    assert words in str(caught.value)


@pytest.mark.parametrize("body", ["", "<html>no</html>", "[]", "null", "{}"])
def test_error_without_a_reason(body: str) -> None:
    """An error body without ``error`` is reported with the status alone."""
    with serving(lambda handler: reply(handler, body, 401)) as fake, pytest.raises(ProviderRefused) as caught:
        ask(fake.url)
    assert "401 Unauthorized (provider.token)" in str(caught.value)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://nowhere.invalid"])
def test_a_server_that_cannot_be_reached_is_unavailable(address: str) -> None:
    """A refused connection, and a name that is not resolved, are errors that name provider.address."""
    with pytest.raises(ProviderUnavailable, match=r"\(provider\.address\)"):
        ask(address)


def test_silent_server_times_out() -> None:
    """A server that accepts and sends nothing is a timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ProviderUnavailable, match="in time"):
        ask(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)


@pytest.mark.parametrize("pause", [1, 0], ids=["stalled", "truncated"])
def test_an_incomplete_body_is_unavailable(pause: int) -> None:
    """A server that stops in the middle of the body is a timeout, and one that closes the connection is not."""

    def stop_halfway(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(b"12345")
        time.sleep(pause)

    with serving(stop_halfway) as fake, pytest.raises(ProviderUnavailable) as caught:
        ask(fake.url, timeout=0.2 if pause else LIMIT_SECONDS)
    assert ("no answer in time" in str(caught.value)) == bool(pause)


@pytest.mark.parametrize("has_proxy", [False, True])
def test_abort_ends_a_slow_response(monkeypatch: pytest.MonkeyPatch, has_proxy: bool) -> None:
    """abort() ends a response that sends a byte from time to time, which no read timeout ends; also by a proxy."""

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        threading.Timer(0.2, session.abort).start()
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.02)

    settings = ProviderSettings(name="Prometheus")
    with serving(trickle) as fake, closing(ProviderSession(settings, bearer(settings))) as session:
        url = "http://prometheus.invalid/" if has_proxy else f"{fake.url}/"
        if has_proxy:
            monkeypatch.setenv("HTTP_PROXY", fake.url)
            monkeypatch.delenv("NO_PROXY", raising=False)
        began = time.monotonic()
        with pytest.raises(requests.RequestException):
            session.get(url, timeout=2 * LIMIT_SECONDS)
        assert time.monotonic() - began < LIMIT_SECONDS
    assert fake.requests[0][0] == (url if has_proxy else "/")


@pytest.mark.parametrize("status", [200, 302, 500])
def test_endless_body_is_limited(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Reading stops at the limit with an error, also for redirects and error responses."""
    monkeypatch.setattr(transport_session, "_MAX_BYTES", 3 * 1024**2)
    sent = []

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Location", "/")
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65536)
            sent.append(65536)

    with serving(endless) as fake, pytest.raises(ProviderAnswerError) as caught:
        ask(fake.url)
    assert str(caught.value) == f"Prometheus at {fake.url}: the answer is larger than 3 MiB"
    assert sum(sent) < 64 * 1024**2


@pytest.mark.parametrize("body", ["<html>log in</html>", "[" * 200_000, '{"a":' * 100_000])
def test_a_body_that_is_not_json_names_the_address(body: str) -> None:
    """A login page with status 200, and JSON that is nested too deeply, is an error that mentions the address."""
    with serving(lambda handler: reply(handler, body)) as fake:
        response = ask(fake.url)
    with pytest.raises(requests.JSONDecodeError) as caught:
        response.json()
    error = provider_error("Prometheus", fake.url, caught.value)
    assert isinstance(error, ProviderAnswerError)
    assert "provider.address" in str(error)


def test_redirect_on_the_same_host() -> None:
    """A redirect on the same host is followed, with the credentials."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/":
            reply(handler, "moved", 302, Location="/there")
        else:
            reply(handler, {"here": True})

    with serving(answer) as fake:
        assert ask(fake.url + "/", token="hush").json() == {"here": True}
    assert [headers["Authorization"] for _, headers in fake.requests] == ["Bearer hush"] * 2


def test_redirect_to_another_host_is_refused() -> None:
    """A redirect to another host is an error that names both hosts; no token or header is sent there."""
    with serving(lambda handler: reply(handler, {})) as other:
        there = other.url.replace("127.0.0.1", "localhost")
        with serving(lambda handler: reply(handler, "moved", 302, Location=there)) as fake:
            with pytest.raises(ProviderAnswerError, match=there):
                ask(fake.url, token="hush")
    assert other.requests == []


def test_redirect_loop() -> None:
    """A server that redirects to itself is unavailable."""
    with (
        serving(lambda handler: reply(handler, "", 302, Location="/")) as fake,
        pytest.raises(ProviderUnavailable, match="redirects"),
    ):
        ask(fake.url)


def test_netrc_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A .netrc with the provider's host has no effect, with a token or without."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login scott password tiger\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with serving(lambda handler: reply(handler, {})) as fake:
        ask(fake.url)
        ask(fake.url, token="hush")
    assert [headers.get("Authorization") for _, headers in fake.requests] == [None, "Bearer hush"]


def test_credentials_in_the_address() -> None:
    """User and password in the address become basic authentication; a token has priority."""
    with serving(lambda handler: reply(handler, {})) as fake:
        address = fake.url.replace("://", "://scott:ti%67er@")
        ask(address)
        ask(address, token="hush")
    assert [headers["Authorization"] for _, headers in fake.requests] == ["Basic c2NvdHQ6dGlnZXI=", "Bearer hush"]


@pytest.mark.parametrize("failure", [ValueError("scott:tiger@"), OSError("http://scott:tiger@h"), KeyError("data")])
def test_credentials_in_the_address_are_not_shown(failure: Exception) -> None:
    """No error has the user and password of the address, even if an underlying error does."""
    error = provider_error("Prometheus", "http://scott:tiger@h:9090", failure)
    assert str(error).startswith("Prometheus at http://h:9090")
    assert "tiger" not in str(error)


def test_pods_token_is_read_for_each_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With openshift_auth the service account's current token is sent."""
    monkeypatch.setattr(kubernetes, "SERVICE_ACCOUNT", tmp_path)
    settings = ProviderSettings(name="x", openshift_auth=True)
    session = ProviderSession(settings, bearer(settings))
    with serving(lambda handler: reply(handler, {})) as fake:
        for token in ("one\n", "two\n"):
            (tmp_path / "token").write_text(token)
            session.get(fake.url, timeout=60)
    session.close()
    assert [headers["Authorization"] for _, headers in fake.requests] == ["Bearer one", "Bearer two"]


def test_missing_token_of_the_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """openshift_auth outside a pod is an error with the file's path and the setting."""
    monkeypatch.setattr(kubernetes, "SERVICE_ACCOUNT", tmp_path)
    with pytest.raises(ProviderRefused) as caught:
        ask("http://127.0.0.1:9", openshift_auth=True)
    assert str(tmp_path / "token") in str(caught.value)
    assert "provider.openshift_auth" in str(caught.value)


# -- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Authority that no system trusts."""
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def tls(authority: Authority) -> ssl.SSLContext:
    """Server context with a certificate of this authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("provider"))
    return context


@pytest.mark.parametrize(
    ("file", "named"),
    [(None, "its certificate is not trusted"), (None, "set provider.ca_file"), ("missing.pem", "missing.pem")],
)
def test_a_certificate_that_cannot_be_verified_is_refused(tls: ssl.SSLContext, file: str | None, named: str) -> None:
    """An unknown certificate is an error that names provider.ca_file, a missing file one with its path."""
    with serving(lambda handler: reply(handler, {}), tls) as fake, pytest.raises(ProviderUnavailable) as caught:
        ask(fake.url.replace("http:", "https:"), ca_file=file)
    assert named in str(caught.value)
    assert fake.requests == []


@pytest.mark.parametrize("bundle", [None, "/dev/null"])
@pytest.mark.parametrize("way", ["ca_file", "insecure_skip_verify"])
def test_certificate_is_accepted_by_setting(
    tls: ssl.SSLContext, authority: Authority, way: str, bundle: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ca_file and insecure_skip_verify accept it, regardless of REQUESTS_CA_BUNDLE."""
    if bundle is not None:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", bundle)
        monkeypatch.setenv("CURL_CA_BUNDLE", bundle)
    value = authority.certificate if way == "ca_file" else True
    with serving(lambda handler: reply(handler, {"tls": True}), tls) as fake:
        assert ask(fake.url.replace("http:", "https:"), **{way: value}).json() == {"tls": True}


@pytest.mark.parametrize("proxy", ["http://user:pr0xy-pass@127.0.0.1:{port}", "127.0.0.1:{port}"])
def test_unreachable_proxy_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """A failed connection through a proxy of the environment names the proxy, without its credentials."""
    port = closed_port()
    monkeypatch.setenv("HTTP_PROXY", proxy.format(port=port))
    with pytest.raises(ProviderUnavailable) as caught:
        ask("http://prometheus.example.com:9090")
    assert f"http://127.0.0.1:{port}" in str(caught.value)
    assert "pr0xy-pass" not in str(caught.value)


def test_silent_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that never answers is named in the message about the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(ProviderUnavailable, match=r"proxy .* in time"):
            ask("http://prometheus.example.com:9090", timeout=0.3)


def test_refusal_by_a_proxy_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error status that came through a proxy names the proxy, which may have sent it; a refused tunnel, too."""
    with serving(lambda handler: reply(handler, b"blocked", 503)) as fake:
        monkeypatch.setenv("HTTP_PROXY", fake.url)
        monkeypatch.setenv("HTTPS_PROXY", fake.url)
        for address in ("http://prometheus.example.com:9090", "https://prometheus.example.com"):
            with pytest.raises(ProviderUnavailable, match=f"proxy {fake.url}"):
                ask(address)


def test_no_proxy_is_named_for_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host in NO_PROXY is reached directly, and its failure names no proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(ProviderUnavailable) as caught:
        ask(nowhere())
    assert "proxy" not in str(caught.value)
