"""Tokens, TLS and client certificates, end to end: the real service with the real client and commands."""

import shutil
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner, Result
from support.certificates import Authority
from support.servers import Service, check_error, prometheus_arguments, send_raw, wait_until

from client import AccessDenied, ServiceClient, WatcherUnavailable
from trimaran.cli.main import main

Start = Callable[..., Service]
TOKEN, OTHER = "right-token-right-token", "other-token-other-token"
FAKE = ("--provider", "Fake")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that the service and the clients trust."""
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


def started(watch: Start, *settings: str, **environment: str) -> Service:
    """Start a service with the given settings and wait until it is ready."""
    service = watch(*FAKE, *(word for setting in settings for word in ("--set", setting)), **environment)
    wait_until(lambda: requests.get(f"{service.url}/readyz", timeout=5, verify=False).ok, "it is ready")
    return service


def run(*arguments: str) -> Result:
    """Run a trimaran command."""
    return CliRunner().invoke(main, list(arguments))


pytestmark = pytest.mark.filterwarnings("ignore:Unverified HTTPS request")


def test_token_from_the_environment(watch: Start) -> None:
    """A token from the environment protects the service, and neither its log nor ``trimaran config`` shows it."""
    service = started(watch, TRIMARAN_SERVER__TOKEN=TOKEN)
    check_error(service.get("/watcher"), 401, "unauthorized")
    assert service.get("/watcher", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert "a stock kube-scheduler" in service.log.read_text()
    assert TOKEN not in service.log.read_text()
    shown = CliRunner().invoke(main, ["config"], env={"TRIMARAN_SERVER__TOKEN": TOKEN}).output
    assert "********" in shown
    assert TOKEN not in shown


def test_trimaran_top_with_a_token_and_tls(watch: Start, tmp_path: Path, authority: Authority) -> None:
    """``trimaran top`` lists the nodes with --token-file and --ca-file, and explains the error without either."""
    certificate = authority.issue("top-server")
    service = started(watch, f"server.certificate={certificate}", f"server.token={TOKEN}")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    trusted = ("--ca-file", str(authority.certificate))
    done = run("top", "--watcher", service.url, *trusted, "--token-file", str(file))
    assert done.exit_code == 0, done.output
    assert "node-3" in done.output
    for arguments, words in (
        (trusted, "refuses the credentials: 401"),
        (("--token-file", str(file)), "TLS failed"),
        ((*trusted, "--token-file", str(tmp_path / "nowhere")), "No such file"),
    ):
        done = run("top", "--watcher", service.url, *arguments)
        assert done.exit_code == 1
        assert words in done.stderr
        assert TOKEN not in done.output


def test_client_certificates(watch: Start, authority: Authority, stranger: Authority) -> None:
    """Only clients with a certificate of the trusted authority read metrics; probes answer every client over TLS."""
    server, mine = authority.issue("server"), authority.issue("reader")
    service = started(watch, f"server.certificate={server}", f"server.client_ca_file={authority.certificate}")
    trusted = authority.certificate
    with ServiceClient(service.url, ca_file=trusted, client_certificate=mine) as client:
        assert len(client.metrics().data) == 3
        assert client.metrics() is client.metrics()  # the entity tag works behind TLS too
    with ServiceClient(service.url, ca_file=trusted) as client, pytest.raises(AccessDenied, match="403"):
        client.metrics()
    other = stranger.issue("reader")
    with ServiceClient(service.url, ca_file=trusted, client_certificate=other, retries=0) as client:
        with pytest.raises(WatcherUnavailable):
            client.metrics()
    assert service.get("/livez", verify=str(trusted)).status_code == 200
    done = run("top", "--watcher", service.url, "--ca-file", str(trusted), "--client-certificate", str(mine))
    assert "node-3" in done.output
    assert "client certificate" in service.log.read_text()
    assert "Traceback" not in service.log.read_text()


@pytest.mark.slow
def test_client_certificate_expires_on_an_open_connection(watch: Start, authority: Authority) -> None:
    """An expired certificate gets 403 and the connection is closed, so that the client's renewed one is checked."""
    server = authority.issue("lasting")
    service = started(watch, f"server.certificate={server}", f"server.client_ca_file={authority.certificate}")
    short = authority.issue("short", seconds=6)
    options = {"timeout": 10, "verify": str(authority.certificate), "cert": str(short)}
    with requests.Session() as session:
        first = answer = session.get(f"{service.url}/watcher", **options)
        for _ in range(300):
            if not answer.ok:
                break
            time.sleep(0.1)
            answer = session.get(f"{service.url}/watcher", **options)
    assert (first.status_code, first.headers["Connection"]) == (200, "keep-alive")
    assert "expired" in check_error(answer, 403, "forbidden")
    assert answer.headers["Connection"] == "close"


def test_token_and_client_certificate_are_both_required(watch: Start, authority: Authority) -> None:
    """A service that requires tokens and client certificates refuses requests that have only one of them."""
    server, mine = authority.issue("both-server"), authority.issue("both-reader")
    service = started(
        watch, f"server.certificate={server}", f"server.client_ca_file={authority.certificate}", f"server.token={TOKEN}"
    )
    header = {"Authorization": f"Bearer {TOKEN}"}
    trusted = str(authority.certificate)
    check_error(service.get("/watcher", verify=trusted, headers=header), 403, "forbidden")
    check_error(service.get("/watcher", verify=trusted, cert=str(mine)), 401, "unauthorized")
    assert service.get("/watcher", verify=trusted, cert=str(mine), headers=header).status_code == 200


def test_a_renewed_certificate_is_served_without_a_restart(watch: Start, tmp_path: Path, authority: Authority) -> None:
    """New connections get the certificate that is now in the file, or the previous one while the file is invalid."""
    file = tmp_path / "certificate.pem"
    first, second = authority.issue("first"), authority.issue("second")
    shutil.copy(first, file)
    service = started(watch, f"server.certificate={file}")

    def name() -> str:
        context = ssl.create_default_context(cafile=authority.certificate)
        with (
            socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=60) as connection,
            context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
        ):
            return str(secured.getpeercert()["subject"][0][0][1])

    assert name() == "first"
    file.write_text("half of a certif")
    assert name() == "first"
    shutil.copy(second, file)
    assert name() == "second"
    assert "previous content stays" in service.log.read_text()


def test_certificate_and_key_in_separate_files(watch: Start, tmp_path: Path, authority: Authority) -> None:
    """The certificate and its key may be in two files, as in TLS secrets of Kubernetes."""
    both = authority.issue("pair").read_text()
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_text(both[: both.index("-----BEGIN PRIVATE")])
    key.write_text(both[both.index("-----BEGIN PRIVATE") :])
    service = started(watch, f"server.certificate={certificate}", f"server.key={key}")
    assert service.get("/watcher", verify=str(authority.certificate)).status_code == 200


def test_old_tls_and_plain_http_are_refused(watch: Start, authority: Authority) -> None:
    """The HTTPS port refuses TLS below 1.2 and plain HTTP, and the service continues."""
    service = started(watch, f"server.certificate={authority.issue('strict')}")
    port = int(service.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        plain.sendall(b"GET /watcher HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.certificate)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as old,
        pytest.raises(OSError, match=r"protocol|alert"),
    ):
        context.wrap_socket(old, server_hostname="127.0.0.1")
    assert service.get("/livez", verify=str(authority.certificate)).status_code == 200


def test_compat_port_for_the_stock_scheduler(watch: Start, authority: Authority) -> None:
    """server.compat_port answers /compat in plain HTTP without a token, and no other route.

    The HTTPS port stays protected.
    """
    service = started(
        watch, f"server.certificate={authority.issue('compat')}", f"server.token={TOKEN}", "server.compat_port=0"
    )
    assert service.get("/compat/watcher", verify=str(authority.certificate)).status_code == 401
    open_ = Service.__new__(Service)
    open_.url = service.logged_url("compat_url")
    assert len(open_.get("/compat/watcher").json()["data"]["NodeMetricsMap"]) == 3
    with ServiceClient(f"{open_.url}/compat") as client:
        assert len(client.metrics().data) == 3
    assert open_.get("/livez").status_code == 200
    for path in ("/watcher", "/metrics", "/findings", "/", "/openapi.json", "/watcher/health"):
        check_error(open_.get(path, headers={"Authorization": f"Bearer {TOKEN}"}), 404, "not_found")


def test_headers_cannot_claim_the_compat_port(watch: Start) -> None:
    """A request to the protected port is refused even if its headers name the open port."""
    service = started(watch, f"server.token={TOKEN}", "server.compat_port=0")
    port = service.logged_url("compat_url").rpartition(":")[2]
    headers = f"Host: 127.0.0.1:{port}\r\nX-Forwarded-Port: {port}\r\nX-Forwarded-Host: 127.0.0.1:{port}\r\n"
    request = f"GET /compat/watcher HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"
    status, _, body = send_raw(service, request.encode())
    assert (status, b"NodeMetricsMap" in body) == (401, False)


def test_provider_address_is_hidden_without_a_token(watch: Start) -> None:
    """While the provider is down, no answer to a client without the token contains the provider's address."""
    address = "http://127.0.0.1:9"
    service = watch(*prometheus_arguments(address), "--set", f"server.token={TOKEN}", "--set", "server.compat_port=0")
    header = {"Authorization": f"Bearer {TOKEN}"}
    wait_until(lambda: address in service.get("/watcher/health", headers=header).text, "the provider is down")
    answers = [
        requests.get(f"{url}{path}", timeout=60).text
        for url in (service.url, service.logged_url("compat_url"))
        for path in ("/watcher", "/watcher/health", "/findings", "/readyz", "/livez", "/metrics", "/compat/watcher",
                     "/compat/watcher/a", "/compat/watcher?host=a", "/compat/watcher?window=5m")
    ]  # fmt: skip
    assert all(answers)
    assert not any("127.0.0.1" in text or "refused" in text for text in answers)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["server.tokens_file={folder}/nowhere"], ["server.tokens_file = '", "No such file"]),
        (["server.certificate={folder}/nowhere"], ["server.certificate = '", "No such file"]),
        (["server.certificate={folder}/text"], ["server.certificate = '"]),
        (["server.certificate={good}", "server.client_ca_file={folder}/text"], ["server.client_ca_file = '"]),
        (["server.certificate={good}", "server.key={folder}/text"], ["server.certificate = '", "server.key"]),
        pytest.param(["server.compat_port={taken}"], ["is in use", "server.compat_port"], marks=pytest.mark.slow),
    ],
    ids=["tokens", "certificate", "no certificate", "authority", "key", "port"],
)
def test_unusable_files_and_ports_end_the_start(
    watch: Start, tmp_path: Path, authority: Authority, settings: list[str], words: list[str]
) -> None:
    """A file or port that cannot be used ends the start with an error that names the setting, without a traceback."""
    (tmp_path / "text").write_text("this is no certificate\n")
    good = authority.issue("good")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        formatted = [setting.format(folder=tmp_path, good=good, taken=taken.getsockname()[1]) for setting in settings]
        service = watch(*FAKE, *(word for setting in formatted for word in ("--set", setting)))
        assert service.process.wait(30) in {1, 2}
    log = service.log.read_text()
    assert all(word in log for word in words), log
    assert "Traceback" not in log
