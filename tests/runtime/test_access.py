"""Access control of every route by bearer tokens, client certificates and ports."""

import math
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.api_routes import ROUTES, check_error
from support.bench import Api
from support.certificates import Authority

from runtime.server.access import AccessCheck, certificate_expiry, parse_tokens
from runtime.server.tls import TlsContext
from watcher.api.app import create_app
from watcher.api.service import open_access
from watcher.errors import SettingsError
from watcher.settings import WatcherServerSettings

TOKEN, OTHER = "right-token-right-token", "other-token-other-token"
PATHS = [route.replace("<host>", "a").replace("query", "query?query=trimaran_node_load_ratio") for route in ROUTES]
PRIVATE_PATHS = [path for path in (*PATHS, "/nowhere", "/watcher?host=a") if path not in {"/livez", "/readyz"}]

ConfigureAccess = Callable[..., Api]


@pytest.fixture
def locked(ready_api: Api) -> ConfigureAccess:
    """Return a function that configures access control of an API after a fetch."""

    def lock(**settings: Any) -> Api:
        server = WatcherServerSettings(**settings)
        ready_api.app = create_app(
            ready_api.watcher, ready_api.telemetry, open_access(server, clock=lambda: ready_api.now)
        )
        ready_api.client = ready_api.app.test_client()
        return ready_api

    return lock


@pytest.mark.parametrize("path", PRIVATE_PATHS)
def test_a_request_without_a_token(locked: ConfigureAccess, path: str) -> None:
    """Every route except the probes answers 401 with a challenge to requests without a token."""
    response = locked(token=TOKEN).get(path)
    assert check_error(response, 401, "unauthorized") == "a bearer token is needed"
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="trimaran"'
    assert response.headers["Cache-Control"] == "no-store"
    assert "ETag" not in response.headers


WRONG = (
    "wrong-token-wrong-token", f"{TOKEN}x", TOKEN[:-1], TOKEN.upper(), f"{TOKEN} {TOKEN}", f"{TOKEN}, Bearer {TOKEN}",
    "\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9", "x" * 8000,
)  # fmt: skip
NONE = ("", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer{TOKEN}", "Negotiate x")


@pytest.mark.parametrize(
    ("header", "error"),
    [*((f"Bearer {token}", ', error="invalid_token"') for token in WRONG), *((header, "") for header in NONE)],
)
def test_a_wrong_token(locked: ConfigureAccess, header: str, error: str) -> None:
    """Any other token is a 401 with invalid_token in the challenge, and is not quoted; other schemes are no token."""
    response = locked(token=TOKEN).get("/watcher", Authorization=header)
    check_error(response, 401, "unauthorized")
    assert response.headers["WWW-Authenticate"] == f'Bearer realm="trimaran"{error}'
    assert TOKEN not in response.text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
def test_a_valid_token(locked: ConfigureAccess, path: str, scheme: str) -> None:
    """Every route answers a valid token, whatever the case of the scheme; no workload is known here, no node named."""
    expected = 404 if path.startswith("/workloads") else 400 if path == "/pods/history" else 200  # without a node
    assert locked(token=TOKEN).get(path, Authorization=f"{scheme} {TOKEN}").status_code == expected


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PUT", "DELETE"])
def test_other_methods_need_a_token(locked: ConfigureAccess, method: str) -> None:
    """All methods answer 401 without a token."""
    assert locked(token=TOKEN).client.open("/watcher", method=method).status_code == 401


def test_a_token_outside_the_header_is_ignored(locked: ConfigureAccess) -> None:
    """A token in the query or a cookie is ignored, since such places end up in logs."""
    api = locked(token=TOKEN)
    for path in (f"/watcher?token={TOKEN}", f"/watcher?access_token={TOKEN}"):
        assert api.get(path).status_code == 401
    assert api.get("/watcher", Cookie=f"token={TOKEN}").status_code == 401


def test_probes_are_open_without_reasons(locked: ConfigureAccess) -> None:
    """/livez and /readyz answer everyone, and do not tell the reasons of a failure."""
    api = locked(token=TOKEN)
    assert api.get("/livez").json == {"alive": True}
    assert api.get("/readyz").json == {"ready": True}
    api.fail("15m", "10m", "5m")
    api.now += 301
    api.watcher.fetch_once()
    assert "no route" not in check_error(api.get("/readyz"), 503, "not_ready")


def test_metrics_and_compat_can_be_opened(locked: ConfigureAccess) -> None:
    """One setting each opens /metrics and /compat, and nothing else."""
    for settings, opened in (
        ({}, set()),
        ({"metrics_open": True}, {"/metrics"}),
        ({"compat_open": True}, {"/compat/watcher", "/compat/watcher/a"}),
    ):
        api = locked(token=TOKEN, **settings)
        assert {path for path in PRIVATE_PATHS if api.get(path).status_code == 200} == opened


def test_clients_without_a_token_get_no_reasons(locked: ConfigureAccess) -> None:
    """Open routes tell reasons only to clients with a token, because reasons name providers' addresses."""
    api = locked(token=TOKEN, compat_open=True)
    api.fail("15m", "10m", "5m")
    api.now += 301
    api.watcher.fetch_once()
    assert "no route" not in check_error(api.get("/compat/watcher/a"), 404, "stale")
    inside = api.get("/compat/watcher/a", Authorization=f"Bearer {TOKEN}")
    assert "no route" in check_error(inside, 404, "stale")
    assert api.get("/compat/watcher").json["data"] == {"NodeMetricsMap": {}}


def test_shared_caches_must_not_keep_private_responses(locked: ConfigureAccess) -> None:
    """Private responses are for the client's own cache only, and an ETag still saves the body."""
    api = locked(token=TOKEN)
    first = api.get("/watcher", Authorization=f"Bearer {TOKEN}")
    assert first.headers["Cache-Control"] == "private, no-cache"
    again = api.get("/watcher", Authorization=f"Bearer {TOKEN}", If_None_Match=first.headers["ETag"])
    assert (again.status_code, again.data) == (304, b"")
    assert api.get("/watcher", If_None_Match=first.headers["ETag"]).status_code == 401
    assert locked().get("/watcher").headers["Cache-Control"] == "no-cache"


def test_every_response_has_the_security_headers(locked: ConfigureAccess) -> None:
    """Every response has nosniff and Cache-Control, and none names the server."""
    api = locked(token=TOKEN)
    for path in (*PATHS, "/nowhere"):
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}):
            response = api.get(path, **headers)
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == (
                "private, no-cache" if "ETag" in response.headers else "no-store"
            )
            assert "Server" not in response.headers


def test_rejected_requests_are_counted_by_route(locked: ConfigureAccess) -> None:
    """A rejected request is counted for its route with status 401."""
    api = locked(token=TOKEN)
    api.get("/watcher/a")
    metrics = api.get("/metrics", Authorization=f"Bearer {TOKEN}").text
    assert 'trimaran_http_requests_total{route="/watcher/<host>",status="401"} 1.0' in metrics


# -- the file of tokens -------------------------------------------------------------------------------------------


def test_tokens_rotate_without_a_restart(locked: ConfigureAccess, tmp_path: Path) -> None:
    """Tokens that are added to the file or removed from it take effect at once."""
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    api = locked(tokens_file=file)

    def opened() -> list[bool]:
        return [api.get("/watcher", Authorization=f"Bearer {token}").status_code == 200 for token in (TOKEN, OTHER)]

    assert opened() == [True, False]
    file.write_text(f"# rotating\n{TOKEN}\n{OTHER}  # new\n")
    assert opened() == [True, True]
    file.write_text(f"{OTHER}\n")
    assert opened() == [False, True]
    file.unlink()
    assert opened() == [False, True]
    file.write_text("")
    assert opened() == [False, False]


def test_an_expired_token(locked: ConfigureAccess, tmp_path: Path) -> None:
    """A token is valid before its expiry, and not from then on."""
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN} {datetime.fromtimestamp(locked().now + 10, UTC).isoformat()}\n")
    api = locked(tokens_file=file)
    for seconds, status in ((0, 200), (9.9, 200), (0.1, 401)):
        api.now += seconds
        assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == status


def test_the_tokens_of_the_setting_and_the_file_are_valid(locked: ConfigureAccess, tmp_path: Path) -> None:
    """The setting's token and the file's tokens are valid; the setting's stays when the file is emptied."""
    file = tmp_path / "tokens"
    file.write_text(OTHER)
    api = locked(token=TOKEN, tokens_file=file)
    for token in (TOKEN, OTHER):
        assert api.get("/watcher", Authorization=f"Bearer {token}").status_code == 200
    file.write_text("")
    assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == 200
    assert api.get("/watcher", Authorization=f"Bearer {OTHER}").status_code == 401


@pytest.mark.parametrize(
    ("expiry", "when"),
    [
        ("2030-12-31", datetime(2031, 1, 1, tzinfo=UTC)),
        ("2030-12-31T12:00", datetime(2030, 12, 31, 12, tzinfo=UTC)),
        ("2030-12-31T12:00:00Z", datetime(2030, 12, 31, 12, tzinfo=UTC)),
        ("2030-12-31T12:00:00+02:00", datetime(2030, 12, 31, 10, tzinfo=UTC)),
    ],
)
def test_formats_of_an_expiry(monkeypatch: pytest.MonkeyPatch, expiry: str, when: datetime) -> None:
    """A day counts to its end, and times are in UTC unless they have an offset, in any time zone of the machine."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        tokens, problems = parse_tokens(f"{TOKEN}\t{expiry}\n")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert problems == []
    assert list(tokens.values()) == [when.timestamp()]


def test_lines_of_a_tokens_file() -> None:
    """Comments, empty lines, spaces and Windows line ends are allowed; a token without expiry never expires."""
    tokens, problems = parse_tokens(f"# who: build\r\n\r\n   {TOKEN}  # a comment\r\n{OTHER}")
    assert (len(tokens), problems) == (2, [])
    assert set(tokens.values()) == {math.inf}


@pytest.mark.parametrize(
    ("line", "words"),
    [("hush", "at least 16 characters"), ("hush-hush-hush-h\xfcsh", "ASCII"), (f"{TOKEN} tomorrow", "2030-12-31"),
     (f"{TOKEN} 2030-13-01", "2030-12-31"), (f"{TOKEN} 9999-12-31", "2030-12-31"),
     (f"{TOKEN} 2030-12-31 or so", "after the expiry date")],
)  # fmt: skip
def test_an_invalid_line_of_the_tokens_file(
    locked: ConfigureAccess, tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, words: str
) -> None:
    """An invalid line is an error with its number at the start, and later it is logged; it is never quoted."""
    file = tmp_path / "tokens"
    file.write_text(f"{OTHER}\n{line}\n")
    with pytest.raises(SettingsError, match="line 2") as caught:
        AccessCheck(tokens_file=file)
    file.write_text(f"{OTHER}\n")
    api = locked(tokens_file=file)
    file.write_text(f"{OTHER}\n{line}\n")
    assert api.get("/watcher", Authorization=f"Bearer {OTHER}").status_code == 200
    assert (
        api.get("/watcher", Authorization=f"Bearer {line.split(maxsplit=1)[0]}".encode().decode("latin-1")).status_code
        == 401
    )
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    for text in (str(caught.value), record.problem):
        assert words in text
        assert line.split(maxsplit=1)[0] not in text


def test_a_file_without_tokens(locked: ConfigureAccess, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file without tokens admits nobody, and the log says so."""
    file = tmp_path / "tokens"
    file.write_text("# none yet\n")
    api = locked(tokens_file=file)
    assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == 401
    file.write_text(TOKEN)
    assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == 200
    file.write_text("")
    assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == 401
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert ["has no valid token" in record.message for record in errors] == [True, True]
    assert {record.file for record in errors} == {str(file)}


@pytest.mark.parametrize("kind", ["missing", "directory", "not UTF-8"])
def test_a_file_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    """A file that cannot be read at the start is an error that names the setting."""
    file = tmp_path / "tokens"
    match kind:
        case "directory":
            file.mkdir()
        case "not UTF-8":
            file.write_bytes(b"\xff" * 20)
    with pytest.raises(SettingsError, match=r"server\.tokens_file = "):
        AccessCheck(tokens_file=file)


# -- ports and certificates ---------------------------------------------------------------------------------------


def test_the_port_for_the_go_dialect(locked: ConfigureAccess) -> None:
    """The port for the Go dialect serves /compat and the probes without a token, and nothing else."""
    api = locked(token=TOKEN, compat_port=2021)
    status = {
        path: api.client.get(path, environ_overrides={"SERVER_PORT": "2021"}).status_code for path in PRIVATE_PATHS
    }
    assert {path for path, each in status.items() if each == 200} == {"/compat/watcher", "/compat/watcher/a"}
    assert set(status.values()) == {200, 404}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert api.client.get("/watcher", headers=headers, environ_overrides={"SERVER_PORT": "2021"}).status_code == 404
    assert api.client.get("/livez", environ_overrides={"SERVER_PORT": "2021"}).status_code == 200
    assert api.get("/compat/watcher").status_code == 401


def test_a_request_without_a_client_certificate(locked: ConfigureAccess, tmp_path: Path) -> None:
    """Without a client certificate, a request with a token is a 403, and probes are open."""
    api = locked(token=TOKEN, certificate=tmp_path, client_ca_file=tmp_path)
    response = api.get("/watcher", Authorization=f"Bearer {TOKEN}")
    assert check_error(response, 403, "forbidden") == "a client certificate is needed"
    assert api.get("/livez").status_code == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_certificate_that_expires(locked: ConfigureAccess, tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A connection and a resumed session are trusted no longer than the client's certificate."""
    authority = Authority(tmp_path, "authority")
    settings = {"certificate": authority.issue("server"), "client_ca_file": authority.certificate}
    api = locked(**settings)
    tls = TlsContext(settings["certificate"], None, settings["client_ca_file"])
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(authority.issue("reader"))
    context.minimum_version = context.maximum_version = version

    with handshaken(tls, context) as (ours, theirs), handshaken(tls, context, theirs.session) as (again, _):
        assert not theirs.session.has_ticket
        for connection in (ours, again):  # TLS 1.2 can resume without a ticket
            environ = {"gunicorn.socket": connection}
            until = certificate_expiry(connection)
            assert until is not None
            api.now = until - 0.1
            assert api.client.get("/openapi.json", environ_overrides=environ).status_code == 200
            api.now = until
            response = api.client.get("/openapi.json", environ_overrides=environ)
            assert check_error(response, 403, "forbidden") == "the client certificate has expired"


@contextmanager
def handshaken(tls: TlsContext, context: ssl.SSLContext, session: Any = None) -> Iterator[tuple[ssl.SSLSocket, Any]]:
    """Yield both ends of a TLS connection after the handshake and one byte, which brings the session tickets."""
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor() as pool, tls.wrap(ours) as secured:
        client = pool.submit(context.wrap_socket, theirs, server_hostname="localhost", session=session)
        secured.do_handshake()
        secured.sendall(b"x")
        with client.result() as opposite:
            assert opposite.recv(1) == b"x"
            yield secured, opposite
