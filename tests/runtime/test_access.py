"""Who may read what: every route, with and without token, and what an outsider is told."""

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
LOCKED = [path for path in (*PATHS, "/nowhere", "/watcher?host=a") if path not in {"/livez", "/readyz"}]

Locked = Callable[..., Api]


@pytest.fixture
def locked(full: Api) -> Locked:
    """An API after a fetch, with settings of access."""

    def lock(**settings: Any) -> Api:
        server = WatcherServerSettings(**settings)
        full.app = create_app(full.watcher, full.telemetry, open_access(server, clock=lambda: full.now))
        full.client = full.app.test_client()
        return full

    return lock


@pytest.mark.parametrize("path", LOCKED)
def test_without_token(locked: Locked, path: str) -> None:
    """Every route but the probes answers 401 with the challenge to those without a token, and tells them nothing."""
    response = locked(token=TOKEN).get(path)
    assert check_error(response, 401, "unauthorized") == "a bearer token is needed"
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="trimaran"'
    assert response.headers["Cache-Control"] == "no-store"
    assert "ETag" not in response.headers


@pytest.mark.parametrize(
    "header",
    ["Bearer wrong-token-wrong-token", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN.upper()}",
     f"Bearer {TOKEN} {TOKEN}", f"Bearer {TOKEN}, Bearer {TOKEN}", "Bearer \xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9",
     f"Bearer {'x' * 8000}"],
)  # fmt: skip
def test_a_wrong_token(locked: Locked, header: str) -> None:
    """Anything but the very token is a 401 that says so in the challenge, and is not quoted."""
    response = locked(token=TOKEN).get("/watcher", Authorization=header)
    assert check_error(response, 401, "unauthorized") == "the token is unknown or has expired"
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="trimaran", error="invalid_token"'
    assert TOKEN not in response.text


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer{TOKEN}", "Negotiate x"])
def test_no_token_in_the_header(locked: Locked, header: str) -> None:
    """Another scheme, or none, is as good as no header."""
    response = locked(token=TOKEN).get("/watcher", Authorization=header)
    assert check_error(response, 401, "unauthorized") == "a bearer token is needed"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
def test_the_right_token(locked: Locked, path: str, scheme: str) -> None:
    """With the token every route answers as without any setting; the scheme's case does not matter."""
    assert locked(token=TOKEN).get(path, Authorization=f"{scheme} {TOKEN}").status_code == 200


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PUT", "DELETE"])
def test_other_methods_are_locked_too(locked: Locked, method: str) -> None:
    """No method tells more than a 401 without a token."""
    assert locked(token=TOKEN).client.open("/watcher", method=method).status_code == 401


def test_a_token_elsewhere_is_none(locked: Locked) -> None:
    """A token in the query or a cookie opens nothing: such places end up in logs."""
    api = locked(token=TOKEN)
    for path in (f"/watcher?token={TOKEN}", f"/watcher?access_token={TOKEN}"):
        assert api.get(path).status_code == 401
    assert api.get("/watcher", Cookie=f"token={TOKEN}").status_code == 401


def test_probes_are_open_and_tell_nothing(locked: Locked) -> None:
    """/livez and /readyz answer everyone, also when they fail, without the reasons."""
    api = locked(token=TOKEN)
    assert api.get("/livez").json == {"alive": True}
    assert api.get("/readyz").json == {"ready": True}
    api.fail("15m", "10m", "5m")
    api.now += 301
    api.watcher.fetch_once()
    assert "no route" not in check_error(api.get("/readyz"), 503, "not_ready")


def test_what_may_be_opened(locked: Locked) -> None:
    """/metrics and /compat are open by a setting each, and by no other."""
    for settings, opened in (
        ({}, set()),
        ({"metrics_open": True}, {"/metrics"}),
        ({"compat_open": True}, {"/compat/watcher", "/compat/watcher/a"}),
    ):
        api = locked(token=TOKEN, **settings)
        assert {path for path in LOCKED if api.get(path).status_code == 200} == opened


def test_an_outsider_is_not_told_why(locked: Locked) -> None:
    """What is open says that there are no metrics and not why, as reasons name providers' addresses."""
    api = locked(token=TOKEN, compat_open=True)
    api.fail("15m", "10m", "5m")
    api.now += 301
    api.watcher.fetch_once()
    assert (
        check_error(api.get("/compat/watcher/a"), 404, "stale") == "the last metrics are 301 s old, the limit is 300 s"
    )
    inside = api.get("/compat/watcher/a", Authorization=f"Bearer {TOKEN}")
    assert check_error(inside, 404, "stale").endswith("limit is 300 s: no route (15m); no route (10m); no route (5m)")
    assert api.get("/compat/watcher").json["data"] == {"NodeMetricsMap": {}}


def test_a_caches_copy_is_its_readers_own(locked: Locked) -> None:
    """What is locked must not be kept by shared caches; the entity tag still saves the body."""
    api = locked(token=TOKEN)
    first = api.get("/watcher", Authorization=f"Bearer {TOKEN}")
    assert first.headers["Cache-Control"] == "private, no-cache"
    again = api.get("/watcher", Authorization=f"Bearer {TOKEN}", If_None_Match=first.headers["ETag"])
    assert (again.status_code, again.data) == (304, b"")
    assert api.get("/watcher", If_None_Match=first.headers["ETag"]).status_code == 401
    assert locked().get("/watcher").headers["Cache-Control"] == "no-cache"


def test_every_answer_has_the_security_headers(locked: Locked) -> None:
    """Nothing is sniffed; what has no entity tag is not kept; no answer names a version."""
    api = locked(token=TOKEN)
    for path in (*PATHS, "/nowhere"):
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}):
            response = api.get(path, **headers)
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == (
                "private, no-cache" if "ETag" in response.headers else "no-store"
            )
            assert "Server" not in response.headers


def test_refusals_are_counted_by_route(locked: Locked) -> None:
    """A refused request counts for its route with status 401."""
    api = locked(token=TOKEN)
    api.get("/watcher/a")
    metrics = api.get("/metrics", Authorization=f"Bearer {TOKEN}").text
    assert 'trimaran_http_requests_total{route="/watcher/<host>",status="401"} 1.0' in metrics


# -- the file of tokens -------------------------------------------------------------------------------------------


def test_tokens_rotate_without_a_restart(locked: Locked, tmp_path: Path) -> None:
    """A token that is written to the file opens at once, one that is taken out no longer does; none means nobody."""
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


def test_an_expired_token(locked: Locked, tmp_path: Path) -> None:
    """A token opens until its time and not from then on."""
    file = tmp_path / "tokens"
    api = locked()
    until = datetime.fromtimestamp(api.now + 10, UTC).isoformat()
    file.write_text(f"{TOKEN} {until}\n")
    api = locked(tokens_file=file)
    assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == 200
    api.now += 9.9
    assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == 200
    api.now += 0.1
    check_error(api.get("/watcher", Authorization=f"Bearer {TOKEN}"), 401, "unauthorized")


def test_the_token_of_the_settings_and_those_of_the_file(locked: Locked, tmp_path: Path) -> None:
    """Both count; when the file is emptied, the one of the settings stays."""
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
def test_expiries(monkeypatch: pytest.MonkeyPatch, expiry: str, when: datetime) -> None:
    """A day counts with all its hours; times are UTC unless they say otherwise, wherever the machine is."""
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
    """Comments, empty lines, spaces and Windows' ends of line are fine; a token without expiry lasts for ever."""
    tokens, problems = parse_tokens(f"# who: build\r\n\r\n   {TOKEN}  # a comment\r\n{OTHER}")
    assert (len(tokens), problems) == (2, [])
    assert set(tokens.values()) == {math.inf}


@pytest.mark.parametrize(
    ("line", "words"),
    [("hush", "at least 16 characters"), ("hush-hush-hush-h\xfcsh", "ASCII"), (f"{TOKEN} tomorrow", "2030-12-31"),
     (f"{TOKEN} 2030-13-01", "2030-12-31"), (f"{TOKEN} 9999-12-31", "2030-12-31"),
     (f"{TOKEN} 2030-12-31 or so", "after the expiry")],
)  # fmt: skip
def test_a_line_that_cannot_be_used(
    locked: Locked, tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, words: str
) -> None:
    """At the start it is an error with its number; later it is logged and admits nobody; it is never quoted."""
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


def test_a_file_without_tokens(locked: Locked, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that holds no token admits nobody, and the log says so, at the start and when it is emptied."""
    file = tmp_path / "tokens"
    file.write_text("# none yet\n")
    api = locked(tokens_file=file)
    assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == 401
    file.write_text(TOKEN)
    assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == 200
    file.write_text("")
    assert api.get("/watcher", Authorization=f"Bearer {TOKEN}").status_code == 401
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert ["has no valid token" in record.message for record in told] == [True, True]
    assert {record.file for record in told} == {str(file)}


@pytest.mark.parametrize("kind", ["missing", "directory", "not UTF-8"])
def test_a_file_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    """At the start the setting is named, and nothing is served without the tokens that were meant."""
    file = tmp_path / "tokens"
    match kind:
        case "directory":
            file.mkdir()
        case "not UTF-8":
            file.write_bytes(b"\xff" * 20)
    with pytest.raises(SettingsError, match=r"server\.tokens_file = "):
        AccessCheck(tokens_file=file)


# -- ports and certificates ---------------------------------------------------------------------------------------


def test_the_port_for_the_go_dialect(locked: Locked) -> None:
    """What comes in by that port gets /compat and the probes without token, and nothing else even with one."""
    api = locked(token=TOKEN, compat_port=2021)
    status = {path: api.client.get(path, environ_overrides={"SERVER_PORT": "2021"}).status_code for path in LOCKED}
    assert {path for path, each in status.items() if each == 200} == {"/compat/watcher", "/compat/watcher/a"}
    assert set(status.values()) == {200, 404}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert api.client.get("/watcher", headers=headers, environ_overrides={"SERVER_PORT": "2021"}).status_code == 404
    assert api.client.get("/livez", environ_overrides={"SERVER_PORT": "2021"}).status_code == 200
    assert api.get("/compat/watcher").status_code == 401


def test_the_port_cannot_be_pretended(locked: Locked) -> None:
    """Headers that name the open port open nothing."""
    api = locked(token=TOKEN, compat_port=2021)
    pretended = {"Host": "x:2021", "X-Forwarded-Port": "2021", "Server-Port": "2021", "X-Forwarded-For": "127.0.0.1"}
    # Werkzeug's test client makes SERVER_PORT of Host, a server does not.
    overrides = {"SERVER_PORT": "2020"}
    assert api.client.get("/compat/watcher", headers=pretended, environ_overrides=overrides).status_code == 401


def test_without_a_client_certificate(locked: Locked, tmp_path: Path) -> None:
    """Where certificates are asked for, a request without is a 403, whatever token it has; probes are open."""
    api = locked(token=TOKEN, certificate=tmp_path, client_ca_file=tmp_path)
    response = api.get("/watcher", Authorization=f"Bearer {TOKEN}")
    assert check_error(response, 403, "forbidden") == "a client certificate is needed"
    assert api.get("/livez").status_code == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_certificate_that_expires(locked: Locked, tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A connection is trusted no longer than its client's certificate, also one that takes up its session again."""
    authority = Authority(tmp_path, "authority")
    settings = {"certificate": authority.issue("server"), "client_ca_file": authority.certificate}
    api = locked(**settings)
    tls = TlsContext(settings["certificate"], None, settings["client_ca_file"])
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(authority.issue("reader"))
    context.minimum_version = context.maximum_version = version

    with shaken(tls, context) as (ours, theirs), shaken(tls, context, theirs.session) as (again, _):
        assert not theirs.session.has_ticket
        for connection in (ours, again):  # TLS 1.2 can do without a ticket
            environ = {"gunicorn.socket": connection}
            until = certificate_expiry(connection)
            assert until is not None
            api.now = until - 0.1
            assert api.client.get("/openapi.json", environ_overrides=environ).status_code == 200
            api.now = until
            response = api.client.get("/openapi.json", environ_overrides=environ)
            assert check_error(response, 403, "forbidden") == "the client certificate has expired"


@contextmanager
def shaken(tls: TlsContext, context: ssl.SSLContext, session: Any = None) -> Iterator[tuple[ssl.SSLSocket, Any]]:
    """Yield both ends of a connection after the handshake, and a byte, with which tickets come."""
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor() as pool, tls.wrap(ours) as secured:
        client = pool.submit(context.wrap_socket, theirs, server_hostname="localhost", session=session)
        secured.do_handshake()
        secured.sendall(b"x")
        with client.result() as opposite:
            assert opposite.recv(1) == b"x"
            yield secured, opposite


def test_nothing_is_asked_for_by_default(full: Api) -> None:
    """Without any setting every route is open, and reasons are told."""
    full.fail("15m", "10m", "5m")
    full.now += 301
    full.watcher.fetch_once()
    assert "no route" in check_error(full.get("/watcher"), 404, "stale")
