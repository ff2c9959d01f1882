"""The doctor: each step by itself, what it says, and that the service says it too."""

import json
import ssl
import subprocess
import time
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from conftest import History
from support.certificates import Authority
from support.servers import free_port, reply, run_prometheus, serving

from trimaran.cli.main import main
from watcher.doctor import examine
from watcher.doctor.store_check import file_system
from watcher.providers.base import Check
from watcher.settings import FallbackSettings, PrometheusSettings, ProviderSettings, Settings, StoreSettings
from watcher.store import Store


def failures(settings: Settings) -> list[Check]:
    """Return the steps that failed."""
    return [check for check in examine(settings) if not check.ok]


def prometheus(address: str, **options: object) -> Settings:
    """Return settings for a Prometheus."""
    return Settings(provider=ProviderSettings(name="Prometheus", address=address, **options))


def test_all_is_well_with_a_good_prometheus(prometheus_with_rules: History):
    """Against a real Prometheus every step is fine, down to the nodes that a fetch brings."""
    checks = list(examine(prometheus(prometheus_with_rules.url)))
    assert [check for check in checks if not check.ok] == []
    steps = {check.step: check.message for check in checks}
    assert "accepts connections" in steps["Prometheus: TCP"]
    assert steps["Prometheus: fetch 5m"] == "100 nodes"
    assert "local disk" in steps["store"]


@pytest.mark.parametrize(
    ("address", "step"),
    [
        ("http://no-such-host.invalid:9090", "Prometheus: DNS"),
        ("http://127.0.0.1:{free_port}", "Prometheus: TCP"),
    ],
)
def test_stops_at_the_step_that_fails(address: str, step: str):
    """What cannot be resolved or reached fails in that one step, which names the address' setting."""
    (failed,) = failures(prometheus(address.format(free_port=free_port())))
    assert (failed.step, failed.setting) == (step, "provider.address")


def test_a_certificate_that_is_not_trusted_is_said(tmp_path):
    """TLS with an unknown authority fails in the TLS step with provider.ca_file, and works with that set."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(lambda handler: reply(handler, {}, 401), tls=context) as fake:
        address = fake.url.replace("http:", "https:")
        (failed,) = failures(prometheus(address))
        assert (failed.step, failed.setting) == ("Prometheus: TLS", "provider.ca_file")
        for options in ({"ca_file": certificate}, {"insecure_skip_verify": True}):
            checks = list(examine(prometheus(address, **options)))
            assert next(check for check in checks if check.step == "Prometheus: TLS").ok


def test_a_wrong_token_is_said():
    """401 fails with the status; nothing more is asked then."""
    with serving(lambda handler: reply(handler, {"error": "who are you"}, 401)) as fake:
        (failed,) = failures(prometheus(fake.url, token="hush"))
    assert "401" in failed.message
    assert "hush" not in failed.message


def test_what_a_fetch_finds_is_a_failed_step():
    """Values in the wrong unit are a step that fails, with the node in the message."""

    def bytes_not_ratios(handler):
        result = [{"metric": {"instance": "node-1:9100"}, "value": [1, "7000"]}]
        reply(handler, {"status": "success", "data": {"resultType": "vector", "result": result}})

    with serving(bytes_not_ratios) as fake:
        failed = {check.step: check.message for check in failures(prometheus(fake.url))}
    assert "node-1" in failed["Prometheus: out of range"]


def test_the_right_scheme_is_named(tmp_path: Path):
    """Https on a plain port, and http on one that speaks TLS, fail in one step that says which it should be."""
    with serving(lambda handler: reply(handler, {}, 401)) as plain:
        (failed,) = failures(prometheus(plain.url.replace("http:", "https:")))
    assert (failed.step, failed.setting) == ("Prometheus: TLS", "provider.address")
    assert "http:// instead of https://" in failed.message
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(tmp_path, "authority").issue("prometheus"))
    with serving(lambda handler: reply(handler, {}), tls=context) as secured:
        (failed,) = failures(prometheus(secured.url.replace("https:", "http:")))
    assert (failed.step, failed.setting) == ("Prometheus: query API", "provider.address")
    assert "https:// instead of http://" in failed.message


def test_matchers_that_match_nothing_are_blamed_once(prometheus_with_rules: History):
    """Where series are there without the matchers, one step fails, with queries to paste, and names the matchers."""
    settings = prometheus(prometheus_with_rules.url)
    own = settings.model_copy(update={"prometheus": PrometheusSettings(matchers='cluster="prod"')})
    (failed,) = failures(own)
    assert (failed.step, failed.setting) == ("Prometheus: query CPU and Memory", "prometheus.matchers")
    assert 'instance:node_cpu:ratio{cluster="prod"}' in failed.message


def test_an_empty_prometheus_is_one_failure(tmp_path: Path):
    """Without any series one step fails, with queries that Prometheus accepts."""
    other = "# TYPE up gauge\n", f"up 1 {int(time.time())}\n"
    with run_prometheus(tmp_path, iter(other)) as url:
        (failed,) = failures(prometheus(url))
        queries = failed.message.removeprefix("no series of ").partition(". Has node_exporter")[0].split(" | ")
        for query in queries:
            assert requests.get(f"{url}/api/v1/query", params={"query": query}, timeout=5).json()["status"] == "success"
    assert failed.setting == "prometheus.queries"
    assert len(queries) == 6


def test_series_are_listed_with_their_nodes(prometheus_with_rules: History):
    """The step about node names has a line for each series; the command shows them when asked to."""
    checks = {check.step: check for check in examine(prometheus(prometheus_with_rules.url))}
    assert "node-7:9100 is node-7" in checks["Prometheus: query CPU: node names"].details
    arguments = ["doctor", "--provider", "Prometheus", "--address", prometheus_with_rules.url]
    line = "        node-7:9100 is node-7\n"
    assert line in CliRunner().invoke(main, [*arguments, "--verbose"]).output
    assert line not in CliRunner().invoke(main, arguments).output


def test_nodes_are_held_against_the_clusters(tmp_path: Path):
    """Nodes without metrics, and metrics of no node, are a failed step each; a file that is none ends with status 2."""
    nodes = tmp_path / "nodes.yaml"
    host = Settings().host.node_name
    nodes.write_text(json.dumps({"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "other"}}]}))
    result = CliRunner().invoke(main, ["doctor", "--provider", "Host", "--nodes", str(nodes)])
    assert result.exit_code == 1
    assert "FAIL  Host: the cluster's nodes: without metrics: other" in result.output
    assert f"FAIL  Host: metrics of no node: metrics of what is no node of the cluster: {host}" in result.output
    nodes.write_text(json.dumps({"kind": "Node", "metadata": {"name": host}}))
    result = CliRunner().invoke(main, ["doctor", "--provider", "Host", "--nodes", str(nodes)])
    assert result.exit_code == 0
    assert "ok    Host: the cluster's nodes: all 1 have metrics" in result.output
    nodes.write_text("kind: Pod")
    result = CliRunner().invoke(main, ["doctor", "--provider", "Host", "--nodes", str(nodes)])
    assert result.exit_code == 2
    assert "should hold Node objects" in result.output


def test_an_unknown_provider_is_a_failed_step():
    """A provider that does not exist fails with what there is."""
    (failed,) = failures(Settings(provider=ProviderSettings(name="Promtheus")))
    assert "did you mean Prometheus" in failed.message


def test_every_provider_is_examined():
    """Fallbacks are examined too, each step under its provider's name."""
    settings = Settings(
        provider=ProviderSettings(name="Prometheus", address=f"http://127.0.0.1:{free_port()}"),
        fallback=FallbackSettings(providers=[ProviderSettings(name="Host")]),
    )
    checks = list(examine(settings))
    assert {check.step.partition(":")[0] for check in checks} == {"Prometheus", "Host", "store"}


def test_a_store_on_a_network_disk_is_said(monkeypatch, tmp_path):
    """A file system of the network under store.path fails, since SQLite needs a local one."""
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
def test_a_store_that_cannot_be_used_is_said(tmp_path, kind):
    """Where a watcher could keep nothing, or would set a file aside, the step fails and names store.path."""
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


def looks(folder):
    """Return what would show that files were changed."""
    found = {file: file.stat() for file in folder.rglob("*") if file.is_file()}
    return {file: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for file, stat in found.items()}


@pytest.mark.parametrize("kind", ["new", "new folder", "closed", "in use"])
def test_looking_at_the_store_changes_nothing(tmp_path, kind):
    """The store is neither created nor opened where a watcher has it, and the next watcher gets it."""
    path = tmp_path / "sub" / "w.sqlite"
    store = None
    if kind == "new":
        path.parent.mkdir()
    elif kind != "new folder":
        store = Store(path)
        if kind == "closed":
            store.close()
    before = looks(tmp_path)
    check = examine_store(path)
    assert check.ok, check.message
    assert ("a watcher uses it" in check.message) == (kind == "in use")
    assert looks(tmp_path) == before
    if store is not None:
        store.close()
    after = Store(path)
    assert after.failure == ""
    after.close()


def test_the_file_system_is_the_one_mounted_deepest(tmp_path):
    """The type is that of the mount that holds the folder."""
    assert file_system(tmp_path)
    assert file_system(tmp_path) != file_system(tmp_path.__class__("/proc/self"))


def test_the_command_tells_and_ends_with_a_status():
    """``trimaran doctor`` prints a line a step with what mends it; its status is 0, 1, or 2 for bad settings."""
    good = CliRunner().invoke(main, ["doctor", "--provider", "Host"])
    assert good.exit_code == 0
    assert "all is well" in good.output
    bad = CliRunner().invoke(main, ["doctor", "--provider", "Prometheus", "--address", "http://127.0.0.1:1"])
    assert bad.exit_code == 1
    assert "-> provider.address (TRIMARAN_PROVIDER__ADDRESS)" in bad.output
    assert CliRunner().invoke(main, ["doctor", "--set", "server.port=x"]).exit_code == 2


def test_the_command_writes_json():
    """--json is an array of steps, with the same status."""
    result = CliRunner().invoke(
        main, ["doctor", "--json", "--provider", "Prometheus", "--address", "http://127.0.0.1:1"]
    )
    assert result.exit_code == 1
    steps = json.loads(result.output)
    assert {"step", "ok", "message", "setting", "details"} == set(steps[0])
    assert [step["step"] for step in steps if not step["ok"]] == ["Prometheus: TCP"]


def test_the_service_says_in_health_what_failed(watch):
    """A running service names the failed step, and its setting, in the warnings of /watcher/health."""
    service = watch("--provider", "Prometheus", "--address", f"http://127.0.0.1:{free_port()}")
    service.wait_for("/livez")

    def warned() -> bool:
        warnings = service.get("/watcher/health").json()["warnings"]
        return any("check: Prometheus: TCP" in warning and "provider.address" in warning for warning in warnings)

    from support.servers import wait_until

    wait_until(warned, "health names the check that failed")
