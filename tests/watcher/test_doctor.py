"""Tests of the doctor: its steps and messages, the command, and the warnings of the service."""

import json
import ssl
import time
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from conftest import History
from support.certificates import Authority
from support.ports import closed_port, nowhere
from support.servers import reply, run_prometheus, serving

from trimaran.cli.main import main
from watcher.doctor import examine
from watcher.doctor.store_check import file_system
from watcher.providers.base import Check
from watcher.settings import (
    FallbackSettings,
    PrometheusSettings,
    ProviderSettings,
    Settings,
    StoreSettings,
    WatchSettings,
)
from watcher.store import Store


def failures(settings: Settings) -> list[Check]:
    """Return the failed steps."""
    return [check for check in examine(settings) if not check.ok]


def prometheus(address: str, **options: object) -> Settings:
    """Return settings for a Prometheus."""
    return Settings(provider=ProviderSettings(name="Prometheus", address=address, **options))


@pytest.mark.server
def test_all_steps_succeed_with_prometheus(prometheus_with_rules: History):
    """All steps succeed with a real Prometheus, and the fetch has all nodes."""
    checks = list(examine(prometheus(prometheus_with_rules.url)))
    assert [check for check in checks if not check.ok] == []
    steps = {check.step: check.message for check in checks}
    assert "accepts connections" in steps["Prometheus: TCP"]
    assert steps["Prometheus: fetch 5m"] == "100 nodes"
    assert "local disk" in steps["store"]


@pytest.mark.parametrize(
    ("watch", "message"),
    [
        ({"windows": ["15m", "24h"]}, "15m, of 15m, 24h: served to requests that name no window"),
        ({"windows": ["6h"]}, "6h, of 6h: served to requests that name no window"),
        ({"windows": ["15m", "24h"], "default_window": "24h"}, "24h, of 15m, 24h: set by watch.default_window"),
    ],
)
def test_the_default_window_is_named(watch: dict[str, object], message: str) -> None:
    """A step names the window that is served by default; if a setting selects the window, the step says so."""
    settings = Settings(provider=ProviderSettings(name="Fake"), watch=WatchSettings(**watch))
    (check,) = (check for check in examine(settings) if check.step == "default window")
    assert (check.ok, check.message) == (True, message)


@pytest.mark.server
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "gaps in the last 24 hours are filled from Prometheus"),
        ({"store": {"keep_hours": 12}}, "gaps in the last 12 hours are filled from Prometheus"),
        ({"store": {"history_megabytes": 0}}, "the past is not read (store.history_megabytes)"),
        (
            {"provider": {"name": "Fake"}},
            "it begins with the first fetch, as the provider Fake cannot read the past",
        ),
    ],
)
def test_the_start_of_the_history_is_named(
    settings: dict[str, object], message: str, prometheus_with_rules: History
) -> None:
    """A step says whether gaps of the history are filled, or that the provider cannot read the past."""
    provider = {"name": "Prometheus", "address": prometheus_with_rules.url}
    checks = examine(Settings.model_validate({"provider": provider, **settings}))
    (check,) = (check for check in checks if check.step.endswith(": history"))
    assert (check.ok, check.message) == (True, message)


@pytest.mark.parametrize(
    ("address", "step"),
    [
        ("http://no-such-host.invalid:9090", "Prometheus: DNS"),
        ("http://127.0.0.1:{port}", "Prometheus: TCP"),
    ],
)
def test_steps_end_after_a_failed_connection(address: str, step: str):
    """A name that is not resolved, and a closed port, fail in one step that names provider.address."""
    (failed,) = failures(prometheus(address.format(port=closed_port())))
    assert (failed.step, failed.setting) == (step, "provider.address")


def test_untrusted_certificate(tmp_path):
    """An unknown authority fails in the TLS step with provider.ca_file; with that setting the step succeeds."""
    authority = Authority(tmp_path, "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("prometheus"))
    with serving(lambda handler: reply(handler, {}, 401), tls=context) as fake:
        address = fake.url.replace("http:", "https:")
        (failed,) = failures(prometheus(address))
        assert (failed.step, failed.setting) == ("Prometheus: TLS", "provider.ca_file")
        for options in ({"ca_file": authority.certificate}, {"insecure_skip_verify": True}):
            checks = list(examine(prometheus(address, **options)))
            assert next(check for check in checks if check.step == "Prometheus: TLS").ok


def test_wrong_token():
    """Status 401 fails in one step with the status, without the token."""
    with serving(lambda handler: reply(handler, {"error": "who are you"}, 401)) as fake:
        (failed,) = failures(prometheus(fake.url, token="hush"))
    assert "401" in failed.message
    assert "hush" not in failed.message


def test_findings_become_failed_steps():
    """Values in the wrong unit become a failed step with the node in the message."""

    def bytes_not_ratios(handler):
        result = [{"metric": {"instance": "node-1:9100"}, "value": [1, "7000"]}]
        reply(handler, {"status": "success", "data": {"resultType": "vector", "result": result}})

    with serving(bytes_not_ratios) as fake:
        failed = {check.step: check.message for check in failures(prometheus(fake.url))}
    assert "node-1" in failed["Prometheus: out of range"]


def test_wrong_scheme(tmp_path: Path):
    """HTTPS to a plain port, and HTTP to a TLS port, fail in one step that names the right scheme."""
    with serving(lambda handler: reply(handler, {}, 401)) as plain:
        (failed,) = failures(prometheus(plain.url.replace("http:", "https:")))
    assert (failed.step, failed.setting) == ("Prometheus: TLS", "provider.address")
    assert "should the address begin with http://" in failed.message
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(tmp_path, "authority").issue("prometheus"))
    with serving(lambda handler: reply(handler, {}), tls=context) as secured:
        (failed,) = failures(prometheus(secured.url.replace("https:", "http:")))
    assert (failed.step, failed.setting) == ("Prometheus: query API", "provider.address")
    assert "should the address begin with https://" in failed.message


@pytest.mark.server
def test_matchers_without_matches(prometheus_with_rules: History):
    """Matchers that exclude all series fail in one step with prometheus.matchers, and queries to paste."""
    settings = prometheus(prometheus_with_rules.url)
    with_matchers = settings.model_copy(update={"prometheus": PrometheusSettings(matchers='cluster="prod"')})
    (failed,) = failures(with_matchers)
    assert (failed.step, failed.setting) == ("Prometheus: query CPU and Memory", "prometheus.matchers")
    assert 'instance:node_cpu:ratio{cluster="prod"}' in failed.message


@pytest.mark.server
def test_empty_prometheus(tmp_path: Path):
    """Without any series one step fails, with queries that Prometheus accepts."""
    other = "# TYPE up gauge\n", f"up 1 {int(time.time())}\n"
    with run_prometheus(tmp_path, iter(other)) as url:
        (failed,) = failures(prometheus(url))
        queries = failed.message.removeprefix("no series of ").partition(". Has node_exporter")[0].split(" | ")
        for query in queries:
            assert (
                requests.get(f"{url}/api/v1/query", params={"query": query}, timeout=60).json()["status"] == "success"
            )
    assert failed.setting == "prometheus.queries"
    assert len(queries) == 8


@pytest.mark.server
def test_verbose_lists_the_node_of_each_series(prometheus_with_rules: History):
    """The step for node names has a line for each series; the command prints it with --verbose."""
    checks = {check.step: check for check in examine(prometheus(prometheus_with_rules.url))}
    assert "node-7:9100 is node-7" in checks["Prometheus: query CPU: node names"].details
    arguments = ["doctor", "--provider", "Prometheus", "--address", prometheus_with_rules.url]
    line = "        node-7:9100 is node-7\n"
    assert line in CliRunner().invoke(main, [*arguments, "--verbose"]).output
    assert line not in CliRunner().invoke(main, arguments).output


def test_nodes_are_compared_with_a_file(tmp_path: Path):
    """Nodes without metrics and unknown nodes are a failed step each; an invalid file ends with status 2."""
    nodes = tmp_path / "nodes.yaml"
    host = Settings().host.node_name
    nodes.write_text(json.dumps({"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "other"}}]}))
    result = CliRunner().invoke(main, ["doctor", "--provider", "Host", "--nodes", str(nodes)])
    assert result.exit_code == 1
    assert "without metrics: other" in result.output
    assert f"unknown nodes: the cluster has no such nodes: {host}" in result.output
    nodes.write_text(json.dumps({"kind": "Node", "metadata": {"name": host}}))
    result = CliRunner().invoke(main, ["doctor", "--provider", "Host", "--nodes", str(nodes)])
    assert result.exit_code == 0
    assert "ok    Host: the cluster's nodes: " in result.output
    nodes.write_text("kind: Pod")
    result = CliRunner().invoke(main, ["doctor", "--provider", "Host", "--nodes", str(nodes)])
    assert result.exit_code == 2
    assert "Node objects" in result.output


def test_unknown_provider():
    """An unknown provider fails with a similar name."""
    (failed,) = failures(Settings(provider=ProviderSettings(name="Promtheus")))
    assert "Prometheus" in failed.message


def test_fallbacks_are_examined():
    """Fallback providers are examined, too, each step with the provider's name."""
    settings = Settings(
        provider=ProviderSettings(name="Prometheus", address=nowhere()),
        fallback=FallbackSettings(providers=[ProviderSettings(name="Host")]),
    )
    checks = list(examine(settings))
    assert {check.step.partition(":")[0] for check in checks} == {
        "Prometheus", "Host", "default window", "store"
    }  # fmt: skip


def test_store_on_a_network_file_system(monkeypatch, tmp_path):
    """A store on a network file system fails, as SQLite needs a local disk."""
    monkeypatch.setattr("watcher.doctor.store_check.file_system", lambda folder: "nfs4")
    settings = Settings(provider=ProviderSettings(name="Host"), store=StoreSettings(path=tmp_path / "w.sqlite"))
    (failed,) = failures(settings)
    assert (failed.step, failed.setting) == ("store", "store.path")
    assert "nfs4" in failed.message


def examine_store(path):
    """Return the step about the store."""
    settings = Settings(provider=ProviderSettings(name="Host"), store=StoreSettings(path=path))
    (check,) = (check for check in examine(settings) if check.step == "store")
    return check


@pytest.mark.parametrize("kind", ["nowhere", "directory", "below a file", "no database"])
def test_unusable_store(tmp_path, kind):
    """An unusable location, or another file there, fails with store.path and is left unchanged."""
    path = tmp_path / "w.sqlite"
    match kind:
        case "nowhere":
            path = Path("/proc/trimaran/w.sqlite")
        case "directory":
            path.mkdir()
        case "below a file":
            path.touch()
            path /= "w.sqlite"
        case "no database":
            path.write_text("a diary")
    before = sorted(tmp_path.rglob("*"))
    check = examine_store(path)
    assert (check.ok, check.setting) == (False, "store.path")
    assert str(path) in check.message
    assert sorted(tmp_path.rglob("*")) == before


def file_stats(folder):
    """Return inode, size and modification time of each file."""
    stats = {file: file.stat() for file in folder.rglob("*") if file.is_file()}
    return {file: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for file, stat in stats.items()}


@pytest.mark.parametrize("kind", ["new", "new folder", "closed", "in use"])
def test_check_does_not_change_the_store(tmp_path, kind):
    """The check neither creates the store nor opens the file of a running watcher."""
    path = tmp_path / "sub" / "w.sqlite"
    store = None
    if kind == "new":
        path.parent.mkdir()
    elif kind != "new folder":
        store = Store(path)
        if kind == "closed":
            store.close()
    before = file_stats(tmp_path)
    check = examine_store(path)
    assert check.ok, check.message
    assert ("in use by a watcher" in check.message) == (kind == "in use")
    assert file_stats(tmp_path) == before
    if store is not None:
        store.close()
    after = Store(path)
    assert after.failure == ""
    after.close()


def test_file_system_is_that_of_the_deepest_mount(tmp_path):
    """The type is that of the mount that contains the folder."""
    assert file_system(tmp_path)
    assert file_system(tmp_path) != file_system(tmp_path.__class__("/proc/self"))


def test_command_prints_steps_and_returns_a_status():
    """``trimaran doctor`` prints a line for each step; the status is 0, 1, or 2 for invalid settings."""
    good = CliRunner().invoke(main, ["doctor", "--provider", "Host"])
    assert good.exit_code == 0
    assert "all steps passed" in good.output
    bad = CliRunner().invoke(main, ["doctor", "--provider", "Prometheus", "--address", "http://127.0.0.1:1"])
    assert bad.exit_code == 1
    assert "-> provider.address (TRIMARAN_PROVIDER__ADDRESS)" in bad.output
    assert CliRunner().invoke(main, ["doctor", "--set", "server.port=x"]).exit_code == 2


def test_command_writes_json():
    """--json prints an array of steps, with the same status."""
    result = CliRunner().invoke(
        main, ["doctor", "--json", "--provider", "Prometheus", "--address", "http://127.0.0.1:1"]
    )
    assert result.exit_code == 1
    steps = json.loads(result.output)
    assert {"step", "ok", "message", "setting", "details"} == set(steps[0])
    assert [step["step"] for step in steps if not step["ok"]] == ["Prometheus: TCP"]


def test_health_has_failed_steps(watch):
    """/watcher/health of a running service has the failed step and its setting among the warnings."""
    service = watch("--provider", "Prometheus", "--address", nowhere())
    service.wait_for("/livez")

    def warned() -> bool:
        warnings = service.get("/watcher/health").json()["warnings"]
        return any("check: Prometheus: TCP" in warning and "provider.address" in warning for warning in warnings)

    from support.servers import wait_until

    wait_until(warned, "health names the check that failed")
