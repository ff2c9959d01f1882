"""Redaction of secrets and control characters in logs, findings, errors, health and the doctor's output."""

import json
import logging
import re
import ssl
import subprocess
import sys
import warnings
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.certificates import Authority
from support.servers import reply, serving

from client import ClientError, ServiceClient
from runtime import logs, masking
from runtime.settings.loading import load
from trimaran.cli.main import main
from watcher.errors import ProviderError, SettingsError
from watcher.findings import Finding, Kind
from watcher.pipeline.factory import open_watcher
from watcher.pipeline.health import Health
from watcher.providers.base import Check, open_provider
from watcher.settings import Settings, WatcherSettings

SECRET = "s3cr3t-t0ken/with+signs=="
ESCAPE = "\x1b[31mred\x9b\r\nforged line\u202e\x00"


def all_output(settings: Settings, caplog: pytest.LogCaptureFixture) -> str:
    """Return all output of a fetch and of the doctor, including both formats of the log."""
    caplog.set_level(logging.DEBUG, "watcher")
    watcher = open_watcher(settings, None)
    watcher.fetch_once()
    health, findings = watcher.health(), watcher.findings()
    watcher.stop()
    provider = open_provider(settings)
    checks = list(provider.check())
    provider.close()
    shown = [text for check in checks for text in (check.step, check.message, check.setting, *check.details)]
    shown += [text for each in findings for text in (each.message, each.node, each.metric)]
    shown += [formatter.format(record) for record in caplog.records
              for formatter in (logs.TextFormatter(), logs.JsonFormatter())]  # fmt: skip
    return "\n".join([*shown, *health.reasons, *health.warnings])


def settings_for(address: str, **provider: object) -> Settings:
    return Settings.model_validate(
        {
            "provider": {"name": "Prometheus", "address": address, **provider},
            "watch": {"fetch_timeout_seconds": 20, "windows": ["5m"]},
            "influxdb": {"version": "1"},
        }
    )


def check_redacted(output: str) -> None:
    """Check that a text has no secret and no control character."""
    assert SECRET not in output
    assert "s3cr3t" not in output
    assert all(each.isprintable() or each == "\n" for each in output), [
        line for line in output.split("\n") if not line.isprintable()
    ]
    assert not re.search("^forged", output, re.MULTILINE)


def in_reason(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(f"HTTP/1.1 503 no {SECRET} {ESCAPE[:9]}\r\n\r\n".encode("latin-1"))


def in_error(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, json.dumps({"error": f"not {SECRET} {ESCAPE}"}).encode(), 422)


def in_warnings(handler: BaseHTTPRequestHandler) -> None:
    result = [{"metric": {"instance": "node-1:9100"}, "value": [1, "0.25"]}]
    data = {"resultType": "vector", "result": result}
    body = {"status": "success", "data": data, "warnings": [f"not {SECRET} {ESCAPE}"]}
    reply(handler, json.dumps(body).encode())


def in_labels(handler: BaseHTTPRequestHandler) -> None:
    names = [SECRET, f"x {SECRET} {ESCAPE}", f"{SECRET}{ESCAPE}:9100", "node-1:9100"]
    result = [{"metric": {"instance": name}, "value": [1, "0.25"]} for name in names]
    reply(handler, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode())


def in_redirect(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, b"", 302, Location=f"http://me:{SECRET}@localhost:1/{SECRET}?token={SECRET}&x=1")


def in_long_error(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, json.dumps({"error": "x" * 290 + SECRET}).encode(), 422)


@pytest.mark.parametrize("answer", [in_reason, in_error, in_warnings, in_labels, in_redirect, in_long_error])
def test_a_token_in_a_providers_response_is_redacted(
    answer: Callable[[BaseHTTPRequestHandler], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A token that any part of a provider's response repeats is redacted, and so are control characters."""
    with serving(answer) as fake:
        output = all_output(settings_for(fake.url, token=SECRET), caplog)
    assert fake.requests[0][1]["Authorization"] == f"Bearer {SECRET}"
    assert output
    check_redacted(output)


@pytest.mark.parametrize(
    "content", [f"{SECRET}\n{SECRET}", f"{SECRET}\r{SECRET}", f"{SECRET}\r\n {SECRET}", f"{SECRET}\u20ac"]
)
def test_an_invalid_token_file_is_not_quoted(content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A token that cannot be sent in a header is not quoted or sent; the error names the file and the setting."""
    file = tmp_path / "token"
    file.write_bytes(content.encode())
    with serving(in_labels) as fake:
        output = all_output(settings_for(fake.url, token_file=file), caplog)
    assert not fake.requests
    assert str(file) in output
    assert "provider.token_file" in output
    check_redacted(output)


@pytest.mark.parametrize(
    "address",
    [
        f"http://h:9090/?token={SECRET}", f"http://h:9090/#access_token={SECRET}", f"http://me:{SECRET}@h:9090?x",
        f"h:9090/?api_key={SECRET}", f"http://h/?X-Amz-Signature={SECRET}", f"me:{SECRET}@h",
    ],
)  # fmt: skip
def test_a_rejected_url_is_shown_without_secrets(address: str) -> None:
    """The error about a rejected URL quotes neither its query nor its user and password."""
    with pytest.raises(SettingsError) as caught:
        load(WatcherSettings, {"provider.address": address})
    check_redacted(str(caught.value))
    with pytest.raises(ValueError, match="URL") as refused:
        ServiceClient(address)
    check_redacted(str(refused.value))


def test_errors_findings_checks_and_health_are_redacted() -> None:
    """Errors, findings, checks and health redact their texts."""
    masking.register_secret(SECRET)
    text = f"not {SECRET} {ESCAPE}"
    finding = Finding(Kind.BAD_VALUE, text, "5m", text, text)
    check = Check(text, ok=False, message=text, setting="x.y", details=(text,))
    health = Health((text,), (text,), {})
    output = [finding.message, finding.node, finding.metric, check.step, check.message, *check.details]
    output += [*health.reasons, *health.warnings, str(ProviderError(text)), str(ClientError(text))]
    output += [*SettingsError([text]).problems, str(SettingsError([text]))]
    for each in output:
        check_redacted(each)
        assert masking.MASK in each


@pytest.mark.parametrize("shape", ["text", "json"])
def test_all_parts_of_a_log_record_are_redacted(shape: str) -> None:
    """Message, fields and traceback of a record are redacted, and cannot forge another record."""
    masking.register_secret(SECRET)
    formatter = logs.TextFormatter() if shape == "text" else logs.JsonFormatter()
    try:
        int(f"not {SECRET} {ESCAPE}")
    except ValueError:
        record = logging.getLogger("x").makeRecord(
            "x", logging.ERROR, "f", 1, "it is %s", (f"{SECRET} {ESCAPE}",), sys.exc_info(),
            extra={"address": f"http://me:{SECRET}@h/?token=abc", "list": [SECRET, ESCAPE], "count": 3},
        )  # fmt: skip
    line = formatter.format(record)
    check_redacted(line)
    if shape == "json":
        fields = json.loads(line)
        assert "\n" not in line
        assert fields["count"] == 3
        assert fields["address"] == "http://h/?token=********"
        assert "ValueError" in fields["exception"]
    else:
        first, *rest = line.split("\n")
        assert "it is ********" in first
        assert rest
        assert all(each.startswith("  ") for each in rest)


def test_log_times_have_date_and_zone() -> None:
    """Both log formats have times with date and time zone."""
    record = logging.makeLogRecord({"created": 0.5, "msg": "x", "levelname": "INFO"})
    pattern = r"(1969|1970)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?[+-]\d\d:\d\d"
    assert re.match(rf"{pattern} info", logs.TextFormatter().format(record))
    assert re.fullmatch(pattern, json.loads(logs.JsonFormatter().format(record))["time"])


def test_warnings_of_python_go_to_the_log() -> None:
    """A Python warning becomes one line of the log."""
    program = (
        "import warnings; from runtime import logs\nlogs.configure(); warnings.warn('be careful\\x1b', UserWarning)"
    )
    done = subprocess.run([sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert re.match(r"\d{4}-\S+ warning ", line)
    assert "be careful" in line
    assert line.isprintable()


def test_an_unverified_certificate_is_one_finding(tmp_path: Path) -> None:
    """insecure_skip_verify gives one finding for all windows and fetches, and no Python warning."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Authority(tmp_path, "authority").issue("service"))
    with serving(in_error, context) as fake, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        address = fake.url.replace("http:", "https:")
        watcher = open_watcher(settings_for(address, name="InfluxDB", insecure_skip_verify=True), None)
        for _ in range(2):
            watcher.fetch_once()
        findings = [each for each in watcher.findings() if each.kind is Kind.UNVERIFIED]
        watcher.stop()
    assert not [each for each in caught if "Unverified" in str(each.message)]
    (finding,) = findings
    assert "provider.insecure_skip_verify" in finding.message
    plain = open_watcher(settings_for("http://127.0.0.1:9", insecure_skip_verify=True), None)
    plain.fetch_once()
    assert not [each for each in plain.findings() if each.kind is Kind.UNVERIFIED]
    plain.stop()


def test_errors_of_the_client_are_redacted() -> None:
    """A token that a gateway repeats in a status or reason is redacted in the client's errors."""
    sent = {"token": SECRET, "retries": 0}
    with serving(in_reason) as fake, ServiceClient(fake.url, **sent) as client:
        with pytest.raises(ClientError) as caught:
            client.metrics()
        check_redacted("\n".join([str(caught.value), *client.health()]))
    with serving(lambda handler: reply(handler, json.dumps({"reasons": [f"{SECRET} {ESCAPE}"]}).encode(), 503)) as fake:
        with ServiceClient(fake.url, **sent) as client:
            check_redacted("\n".join(client.health()))


def test_ordinary_words_are_not_redacted() -> None:
    """A tenant's name in a header is not redacted elsewhere, and neither are short words."""
    with serving(in_labels) as fake:
        settings = settings_for(fake.url, headers={"X-Scope-OrgID": "production-1", "X-Tenant": "blue"})
        provider = open_provider(settings)
        provider.sample if hasattr(provider, "sample") else list(provider.check())
        provider.close()
    masking.register_secret("abc")
    assert fake.requests
    assert masking.MASK not in masking.to_line("blue production-1 abc")


def test_the_number_of_registered_secrets_is_limited() -> None:
    """The oldest of many registered secrets are forgotten."""
    for number in range(5000):
        masking.register_secret(f"token-{number:05}")
    assert masking.to_line("token-04999") == masking.MASK
    assert masking.to_line("token-00000") == "token-00000"


PATH_SECRET = "Tr1m4r4nPathT0ken99"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"https://gateway/{PATH_SECRET}/prometheus", "https://gateway/********/prometheus"),
        ("https://gateway/s3cr3t", "https://gateway/********"),
        ("https://user:pa/ss@gateway/SECRET/?key=a#b", "https://gateway/********/"),
        ("htp://gateway/s3cr3t", "htp://gateway/********"),
        ("gateway/s3cr3t", "gateway/********"),
        ("http://[::1/s3cr3t", "http://[::1/********"),
        (
            "https://api:6443/api/v1/namespaces/monitoring/services/prometheus-k8s:9090/proxy",
            "https://api:6443/api/v1/namespaces/monitoring/services/prometheus-k8s:9090/proxy",
        ),
        ("http://mimir/select/0/prometheus/", "http://mimir/select/0/prometheus/"),
        ("http://prometheus:9090", "http://prometheus:9090"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_secrets_in_its_path(address: str, shown: str) -> None:
    """Parts of a path that are not names are masked; ordinary paths, which errors need, stay readable."""
    assert masking.without_credentials(address) == shown
    masking.register_address_secrets(address)


@pytest.mark.parametrize(
    "assignment",
    [
        f"provider-token={PATH_SECRET}", f"provider.token:{PATH_SECRET}", f"{PATH_SECRET}.a.b=c", PATH_SECRET,
        f"provider.address=http://gateway/{PATH_SECRET}", f"provider.address=htp://gateway/{PATH_SECRET}",
        f'provider.headers={{"{PATH_SECRET}": "value"}}', f'provider.headers={{"Bearer {PATH_SECRET}": "value"}}',
        f'provider.headers={{"Bearer {PATH_SECRET}": 1}}', f'provider.headers=["{PATH_SECRET}"]',
        f'fallback.providers=[{{"name": "Prometheus", "headers": {{"{PATH_SECRET}": {{}}}}}}]',
        f'fallback.providers=[{{"name": "Prometheus", "{PATH_SECRET}": 1}}]',
        f'fallback.providers=[{{"name": "Prometheus", "address": "http://gateway/{PATH_SECRET}"}}]',
    ],
)  # fmt: skip
def test_secrets_in_the_wrong_place_are_not_shown(assignment: str) -> None:
    """A secret in a malformed ``--set``, in a header's name or in an address's path is not shown by ``config``."""
    result = CliRunner().invoke(main, ["config", "--set", assignment])
    assert result.exit_code in {0, 2}
    assert PATH_SECRET not in result.output
    if result.exit_code == 2:
        assert re.search(r"SECTION\.KEY=VALUE|provider\.|fallback\.", result.output)


def test_the_names_of_headers_are_shown() -> None:
    """Names of headers that are words stay readable."""
    result = CliRunner().invoke(main, ["config", "--set", 'provider.headers={"X-Scope-OrgID": "value"}'])
    assert "X-Scope-OrgID=********" in result.output


def test_a_secret_in_the_path_is_redacted_where_the_server_repeats_it(caplog: pytest.LogCaptureFixture) -> None:
    """An error of the provider that quotes the requested path does not show its token."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, {"status": "error", "errorType": "bad_data", "error": f"no route {handler.path}"}, 400)

    with serving(answer) as fake:
        output = all_output(settings_for(f"{fake.url}/{PATH_SECRET}/prometheus"), caplog)
    assert PATH_SECRET in fake.requests[0][0]
    assert PATH_SECRET not in output
    assert "/********/prometheus" in output
