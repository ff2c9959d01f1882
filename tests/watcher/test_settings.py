"""Settings: defaults, sources, and validation that reports all problems at once."""

import contextlib
import itertools
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.settings.loading import display, environment_variable, load, setting_names
from trimaran.extender.settings import ExtenderSettings
from trimaran.soft_taints.settings import NodesSettings
from watcher.errors import SettingsError
from watcher.settings import UPSTREAM_VARIABLES, ProviderSettings, Settings, WatcherSettings, WatchSettings

DEFAULTS = {
    "provider.name": "Host", "provider.address": None, "provider.token": None, "provider.app_key": None,
    "provider.ca_file": None, "provider.insecure_skip_verify": False, "provider.openshift_auth": False,
    "provider.kube_config": None,
    "watch.windows": ["15m", "10m", "5m"], "watch.default_window": "", "watch.interval_seconds": 60,
    "watch.max_fetch_megabytes": 256,
    "watch.fetch_timeout_seconds": 30, "watch.sample_interval_seconds": 15, "watch.expiry_seconds": 300,
    "server.host": "127.0.0.1", "server.port": 2020, "server.threads": 8, "server.dialect": "documented",
    "server.token": None, "server.tokens_file": None, "server.certificate": None, "server.key": None,
    "server.client_ca_file": None, "server.metrics_open": False, "server.compat_open": False,
    "server.compat_host": "127.0.0.1", "server.compat_port": None,
    "dashboard.enabled": True, "dashboard.cluster": False, "dashboard.extender": None,
    "dashboard.rebalancer": None, "dashboard.scheduler": None, "dashboard.alerts": None,
    "dashboard.token_file": None, "dashboard.ca_file": None, "dashboard.client_certificate": None,
    "dashboard.alerts_token_file": None, "dashboard.alerts_ca_file": None, "dashboard.alerts_client_certificate": None,
    "store.keep_hours": 24, "store.max_megabytes": 256, "store.history_megabytes": 128,
    "workloads.enabled": True, "workloads.owner_labels": [], "workloads.interval_seconds": 300,
    "workloads.access": "auto", "workloads.backfill_days": 14, "workloads.rule": "vpa",
    "log.level": "info", "log.format": "text",
    "host.node_name": socket.gethostname(), "prometheus.node_label": "",
    "signalfx.cluster_name": "", "signalfx.host_name_suffix": "",
    "datadog.cluster_name": "", "datadog.host_name_suffix": "",
    "provider.token_file": None,
    "provider.headers": {},
    "provider.client_certificate": None,
    "provider.client_key": None,
    "fallback.providers": [],
    "watch.operators": ["AVG", "STD"],
    "quality.stale_seconds": 300,
    "quality.corroborate": "auto",
    "prometheus.matchers": "",
    "prometheus.query_set": "auto",
    "prometheus.queries": [],
    "prometheus.node_power_watts": 0,
    "prometheus.pressure": False,
    "kubelet.ca_file": None,
    "kubelet.insecure_skip_verify": False,
    "kubelet.through_api_server": False,
    "kubelet.only_cpu_and_memory": False,
    "kubelet.node_selector": "",
    "metrics_server.node_selector": "",
    "influxdb.version": "auto",
    "influxdb.database": "telegraf",
    "influxdb.retention_policy": "",
    "influxdb.username": "",
    "influxdb.password": None,
    "influxdb.organization": "",
    "influxdb.bucket": "telegraf",
    "influxdb.host_tag": "host",
    "influxdb.host_name_suffix": "",
    "influxdb.queries": [],
    "fake.nodes": 3, "fake.pods": 30,
    "fake.file": None,
    "fake.failure": "",
    "signalfx.node_dimension": "host",
    "signalfx.cluster_dimension": "cluster",
    "datadog.node_tag": "host",
    "datadog.cluster_tag": "cluster_name",
    "datadog.cpu_query": "max:cpu.utilization",
    "datadog.memory_query": "max:memory.utilization",
    "datadog.storage_query": "",
    "datadog.bandwidth_query": "",
    "datadog.gpu_query": "",
}  # fmt: skip


def value_of(settings: Settings, name: str) -> Any:
    """Return a setting by its name, with secrets in plain text."""
    section, _, key = name.partition(".")
    value = getattr(getattr(settings, section), key)
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value


def problems(flags: dict[str, Any] | None = None, file: Path | None = None) -> tuple[str, ...]:
    """Load invalid settings, and return the reported problems."""
    with pytest.raises(SettingsError) as caught:
        load(WatcherSettings, flags, file)
    return caught.value.problems


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Path for a settings file."""
    return tmp_path / "settings.toml"


@pytest.mark.parametrize("name", [name for name in setting_names(WatcherSettings) if name != "store.path"])
def test_promised_defaults(name: str) -> None:
    """Each default equals the documented one; a new setting needs an entry in DEFAULTS."""
    assert value_of(load(WatcherSettings).settings, name) == DEFAULTS[name]


def test_default_path_of_the_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The store is in XDG_STATE_HOME, or in ~/.local/state without that variable."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert load(WatcherSettings).settings.store.path == tmp_path / "state" / "trimaran" / "watcher.sqlite"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert load(WatcherSettings).settings.store.path == Path("/home/someone/.local/state/trimaran/watcher.sqlite")


@pytest.mark.parametrize(
    ("name", "setting", "text", "value"),
    [
        ("METRICS_PROVIDER_NAME", "provider.name", "Prometheus", "Prometheus"),
        ("METRICS_PROVIDER_ADDRESS", "provider.address", "http://p:9090/", "http://p:9090"),
        ("METRICS_PROVIDER_TOKEN", "provider.token", "hush", "hush"),
        ("METRICS_PROVIDER_APP_KEY", "provider.app_key", "hush", "hush"),
        ("INSECURE_SKIP_VERIFY", "provider.insecure_skip_verify", "true", True),
        ("ENABLE_OPENSHIFT_AUTH", "provider.openshift_auth", "true", True),
        ("KUBE_CONFIG", "provider.kube_config", "/k", Path("/k")),
        ("SIGNALFX_CLUSTER_NAME", "signalfx.cluster_name", "c", "c"),
        ("SIGNALFX_HOST_NAME_SUFFIX", "signalfx.host_name_suffix", ".x", ".x"),
        ("DATADOG_CLUSTER_NAME", "datadog.cluster_name", "c", "c"),
        ("DATADOG_HOST_NAME_SUFFIX", "datadog.host_name_suffix", ".x", ".x"),
        ("LOG_LEVEL", "log.level", "debug", "debug"),
    ],
)
def test_load_watcher_variables(
    monkeypatch: pytest.MonkeyPatch, name: str, setting: str, text: str, value: object
) -> None:
    """Each of load-watcher's variables sets its setting and is its recorded origin."""
    assert name in UPSTREAM_VARIABLES
    monkeypatch.setenv(name, text)
    loaded = load(WatcherSettings)
    assert value_of(loaded.settings, setting) == value
    assert loaded.origins == {setting: name}


def test_all_load_watcher_variables_are_tested() -> None:
    """The list above has all of load-watcher's variables."""
    assert len(UPSTREAM_VARIABLES) == 12


@pytest.mark.parametrize(
    ("word", "level"),
    [("panic", "panic"), ("fatal", "fatal"), ("error", "error"), ("warn", "warning"), ("warning", "warning"),
     ("info", "info"), ("debug", "debug"), ("trace", "trace"), ("INFO", "info"), ("Warn", "warning")],
)  # fmt: skip
def test_log_levels_of_logrus(monkeypatch: pytest.MonkeyPatch, word: str, level: str) -> None:
    """LOG_LEVEL accepts each of logrus' level names, in any case."""
    monkeypatch.setenv("LOG_LEVEL", word)
    assert load(WatcherSettings).settings.log.level == level


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("t", True), ("false", False), ("0", False)]
)
def test_booleans_of_go(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    """INSECURE_SKIP_VERIFY accepts the values of Go's ParseBool."""
    monkeypatch.setenv("INSECURE_SKIP_VERIFY", text)
    assert load(WatcherSettings).settings.provider.insecure_skip_verify is value


def test_precedence(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Precedence, highest first: flags, TRIMARAN_ variables, load-watcher's variables, the file, the defaults."""
    file.write_text('[log]\nlevel = "error"\nformat = "json"\n')
    assert load(WatcherSettings, file=file).settings.log.level == "error"
    monkeypatch.setenv("LOG_LEVEL", "debug")
    assert load(WatcherSettings, file=file).settings.log.level == "debug"
    monkeypatch.setenv("TRIMARAN_LOG__LEVEL", "trace")
    assert load(WatcherSettings, file=file).settings.log.level == "trace"
    loaded = load(WatcherSettings, {"log.level": "panic"}, file)
    assert loaded.settings.log.level == "panic"
    assert loaded.origins == {"log.level": "command line", "log.format": str(file)}


def test_settings_file_from_a_variable(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """TRIMARAN_SETTINGS names the settings file when no flag does."""
    file.write_text("[server]\nport = 1\n")
    monkeypatch.setenv("TRIMARAN_SETTINGS", str(file))
    assert load(WatcherSettings).settings.server.port == 1


def test_empty_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty environment variable, common in manifests, leaves the default."""
    for name in (*UPSTREAM_VARIABLES, "TRIMARAN_SERVER__PORT", "TRIMARAN_SETTINGS"):
        monkeypatch.setenv(name, "")
    assert load(WatcherSettings).origins == {}


def test_kubernetes_service_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that Kubernetes sets for a Service named trimaran or trimaran-watcher are not read as settings."""
    for service in ("TRIMARAN", "TRIMARAN_WATCHER", "TRIMARAN_SERVER"):
        for suffix, value in {
            "PORT": "tcp://10.0.0.1:2020", "SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "2020",
            "SERVICE_PORT_HTTP": "2020", "PORT_2020_TCP": "tcp://10.0.0.1:2020", "PORT_2020_TCP_PROTO": "tcp",
            "PORT_2020_TCP_PORT": "2020", "PORT_2020_TCP_ADDR": "10.0.0.1",
        }.items():  # fmt: skip
            monkeypatch.setenv(f"{service}_{suffix}", value)
    assert load(WatcherSettings).origins == {}


@pytest.mark.parametrize("name", list(setting_names(WatcherSettings)))
def test_each_setting_has_a_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """TRIMARAN_<SECTION>__<KEY> sets every setting."""
    texts = {
        "provider.address": "http://p", "watch.windows": "5m", "watch.default_window": "5m", "log.level": "debug",
        "log.format": "json", "server.dialect": "go", "provider.insecure_skip_verify": "true",
        "provider.openshift_auth": "true", "watch.expiry_seconds": "61", "prometheus.node_label": "node",
        "provider.headers": '{"X-A": "b"}', "fallback.providers": '[{"name": "Host"}]', "watch.operators": "AVG,P95",
        "prometheus.query_set": "openshift", "prometheus.queries": "[]", "prometheus.pressure": "false",
        "kubelet.insecure_skip_verify": "true", "kubelet.through_api_server": "true",
        "kubelet.only_cpu_and_memory": "true", "influxdb.version": "1",
        "influxdb.queries": "[]", "fake.failure": "slow", "signalfx.node_dimension": "node",
        "quality.corroborate": "off",
        "signalfx.cluster_dimension": "kube", "datadog.node_tag": "node", "datadog.cluster_tag": "kube",
        "server.token": "0123456789abcdef", "server.metrics_open": "true", "server.compat_open": "true",
        "dashboard.enabled": "false", "dashboard.cluster": "true", "dashboard.extender": "http://e",
        "dashboard.rebalancer": "http://r", "dashboard.scheduler": "http://s", "dashboard.alerts": "http://a",
        "workloads.enabled": "false", "workloads.interval_seconds": "60",
        "workloads.access": "review", "workloads.rule": "krr",
    }  # fmt: skip
    if name in {"server.key", "server.client_ca_file"}:  # both require a certificate
        monkeypatch.setenv("TRIMARAN_SERVER__CERTIFICATE", "certificate.pem")
    monkeypatch.setenv(environment_variable(name), texts.get(name, "7"))
    assert load(WatcherSettings).origins[name] == environment_variable(name)
    assert load(WatcherSettings).origins.keys() <= {name, "server.certificate"}


def test_windows_are_a_comma_separated_list(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Windows are any durations, separated by commas in the environment, as a list in the file."""
    monkeypatch.setenv("TRIMARAN_WATCH__WINDOWS", " 6h, 5m,")
    assert load(WatcherSettings).settings.watch.windows == ["6h", "5m"]
    monkeypatch.delenv("TRIMARAN_WATCH__WINDOWS")
    file.write_text('[watch]\nwindows = ["1h30m"]\n')
    assert load(WatcherSettings, file=file).settings.watch.windows == ["1h30m"]


@pytest.mark.parametrize(
    ("windows", "default", "order"),
    [
        (["5m", "15m", "10m"], "", ["15m", "10m", "5m"]),
        (["5m", "6h", "10m"], "10m", ["10m", "5m"]),
        (["5m", "5m"], "", ["5m"]),
        (["15m", "24h"], "", ["15m"]),
        (["24h", "20m", "900s", "5m"], "", ["900s", "5m"]),
        (["24h", "1h", "30m", "5m"], "", ["1h", "30m", "5m"]),
        (["24h", "6h"], "", ["6h"]),
        (["15m", "24h"], "24h", ["24h", "15m"]),
    ],
)
def test_fallback_order(windows: list[str], default: str, order: list[str]) -> None:
    """The default window comes first, then the shorter ones: 15m, else the longest up to 1h, else the shortest."""
    assert WatchSettings(windows=windows, default_window=default).fallback_order() == order


# -- problems -----------------------------------------------------------------------------------------------------


def test_all_problems_are_reported_at_once(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Problems of flags, variables and file are reported together, each with its setting, origin and value."""
    file.write_text('loose = 1\n[server]\nthreads = 0\nprot = 2020\n[wacth]\nwindows = "5m"\nx = 1\n')
    monkeypatch.setenv("LOG_LEVEL", "loud")
    monkeypatch.setenv("INSECURE_SKIP_VERIFY", "perhaps")
    monkeypatch.setenv("TRIMARAN_SERVER__PROT", "1")
    reported = problems({"server.port": "70000", "watch.windows": "15m,fortnight", "provider.address": "p:9090"}, file)
    text = "\n".join(reported)
    for words in (
        f"loose ({file}): settings belong in a section",
        f"server.threads ({file}) = '0': ",
        "server.prot (TRIMARAN_SERVER__PROT): there is no such setting; did you mean server.port?",
        f"wacth.windows ({file}): there is no such setting; did you mean watch.windows?",
        f"wacth.x ({file}): there is no such setting",
        "log.level (LOG_LEVEL) = 'loud': ",
        "provider.insecure_skip_verify (INSECURE_SKIP_VERIFY) = 'perhaps': ",
        "server.port (command line) = '70000': ",
        "watch.windows (command line) = 'fortnight': not a duration",
        "provider.address (command line) = 'p:9090': must start with http:// or https://",
    ):
        assert words in text
    assert len(reported) == 10


@pytest.mark.parametrize("name", ["TRIMARAN__PORT", "TRIMARAN___PORT", "TRIMARAN_SERVER__", "TRIMARAN_A__B__C"])
def test_misspelled_variables(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A misspelled TRIMARAN_ variable is one problem: there is no such setting."""
    monkeypatch.setenv(name, "1")
    (problem,) = problems()
    assert "there is no such setting" in problem


def test_programs_share_a_file(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Sections and variables of the extender and the controllers are ignored by the other programs, flags are not."""
    file.write_text(
        '[extender]\nmode = "active"\n[nodes]\nhot_percent = 70\n[rebalance]\nmode = "act"\n'
        '[scheduler]\nmode = "shadow"\n'
        "[watch]\ninterval_seconds = 30\n"
    )
    monkeypatch.setenv("TRIMARAN_EXTENDER__CANARY", "10")
    assert load(WatcherSettings, file=file).settings.watch.interval_seconds == 30
    extender, nodes = load(ExtenderSettings, file=file).settings.extender, load(NodesSettings, file=file).settings.nodes
    assert (extender.mode, extender.canary, nodes.hot_percent) == ("active", 10, 70)
    (problem,) = problems({"extender.mode": "active"})
    assert problem == "extender.mode (command line): there is no such setting"


def test_conflicting_settings() -> None:
    """A default window not among the windows, and an expiry below the interval, are problems of their section."""
    assert problems({"watch.default_window": "6h"}) == (
        "watch: default_window '6h' is not one of windows: 15m, 10m, 5m",
    )
    (problem,) = problems({"watch.interval_seconds": "600"})
    assert problem.startswith("watch: expiry_seconds 300 ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("watch.interval_seconds", "0"), ("watch.interval_seconds", "nan"), ("watch.interval_seconds", "1e9"),
        ("watch.interval_seconds", "1e-9"), ("watch.sample_interval_seconds", "1e-9"),
        ("watch.fetch_timeout_seconds", "1e-9"),
        ("watch.fetch_timeout_seconds", "-1"), ("watch.expiry_seconds", "0"), ("watch.windows", ","),
        ("watch.windows", "0m"), ("server.port", "-1"), ("server.port", "65536"), ("server.host", ""),
        ("server.threads", "1000"), ("server.dialect", "perl"), ("server.compat_port", "-1"),
        ("server.compat_host", ""),
        ("server.metrics_open", "perhaps"), ("store.keep_hours", "0"), ("store.keep_hours", "inf"),
        ("store.max_megabytes", "inf"), ("store.max_megabytes", "nan"), ("log.format", "xml"),
        ("prometheus.node_label", "in-stance"), ("prometheus.node_label", 'a"}'), ("host.node_name", ""),
        ("provider.address", "http://"), ("provider.address", "http:///"), ("provider.address", "http://h:port"),
        ("provider.address", "http://h:99999"), ("provider.address", "http://[::1"), ("provider.address", "ftp://h"),
        ("provider.address", "http://h ost"), ("provider.address", "http://h\n"), ("provider.address", "http://h?x=1"),
        ("provider.address", "http://h#x"), ("prometheus.node_power_watts", "inf"),
        ("prometheus.node_power_watts", "nan"), ("quality.stale_seconds", "-inf"), ("quality.stale_seconds", "1e999"),
    ],
)  # fmt: skip
def test_invalid_values(name: str, value: str) -> None:
    """An invalid value is refused with one problem that begins with the setting's name."""
    (problem,) = problems({name: value})
    assert problem.startswith(f"{name} (command line) = ")


@pytest.mark.parametrize("address", ["http://h", "https://h:1/path", "http://[::1]:9090", "http://u:p@h:9090/"])
def test_valid_addresses(address: str) -> None:
    """Hosts, ports, paths, IPv6 and credentials are accepted; a trailing slash is removed."""
    assert ProviderSettings(name="x", address=address).address == address.rstrip("/")


@pytest.mark.parametrize("kind", ["missing", "directory", "not TOML", "not UTF-8"])
def test_unusable_settings_files(file: Path, kind: str) -> None:
    """The problem names the file and the reason, together with all other problems."""
    match kind:
        case "directory":
            file.mkdir()
        case "not TOML":
            file.write_text("[server\n")
        case "not UTF-8":
            file.write_bytes(b"[server]\nhost = '\xff'\n")
    first, second = problems({"server.port": "x"}, file)
    reason = "is not TOML: " if kind.startswith("not") else "cannot be read: "
    assert first.startswith(f"the settings file {file} {reason}")
    assert second.startswith("server.port")


# -- secrets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *itertools.product(
            ("provider.token", "provider.app_key", "server.token"),
            ("hush\nhush", "hush\x00", "hüsh-hush", 17, ["hush"], {"hush": "hush"}),
        ),
        *(("server.token", weak) for weak in ("hush", "hush-hush-hush-", "hush hush hush hush hush")),
        *(
            ("provider.address", address)
            for address in (
                "ftp://u:hush@h",
                "u:hush@h",
                "http://u:hush@h:port",
                "http://u:hu/hush@h",
                "http://u:hush@@h?x",
            )
        ),
    ],
)
def test_secrets_are_not_shown_in_errors(name: str, value: Any) -> None:
    """The error about an invalid or weak secret, or an address with one, names the setting and quotes no secret."""
    (problem,) = problems({name: value})
    assert problem.startswith((f"{name} (command line): ", f"{name} (command line) = "))
    assert "hush" not in problem


def test_secrets_are_not_shown_by_the_models() -> None:
    """Neither the settings' representation nor pydantic's own errors contain a secret."""
    settings = ProviderSettings(name="x", token="hush", app_key="hush")  # type: ignore[arg-type]
    assert "hush" not in repr(settings)
    with pytest.raises(ValueError, match="printable ASCII") as caught:
        ProviderSettings(name="x", token="hu\x00sh-hush")  # type: ignore[arg-type]
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"server.key": "key.pem"}, "without certificate"),
        ({"server.client_ca_file": "ca.pem"}, "without certificate"),
        ({"server.compat_port": "2021", "server.port": "2021"}, "compat_port 2021 is the same as port"),
    ],
)
def test_conflicting_server_settings(flags: dict[str, Any], words: str) -> None:
    """A key or client CA without a certificate, and the same port for both listeners, are refused by name."""
    (problem,) = problems(flags)
    assert problem.startswith("server: ")
    assert words in problem


def test_whitespace_around_tokens_is_removed() -> None:
    """Spaces and the newline of a token file are stripped from a token."""
    assert value_of(load(WatcherSettings, {"provider.token": " hush\n"}).settings, "provider.token") == "hush"


def test_display() -> None:
    """display() masks secrets, removes credentials from addresses, joins lists with commas, and shows None as empty."""
    settings = load(WatcherSettings, {"provider.token": "hush", "provider.address": "http://u:hush@h:9090/x"}).settings
    shown = [display(value) for value in (settings.provider.token, settings.provider.address, ["a", "b"], None, 5)]
    assert shown == ["********", "http://h:9090/x", "a,b", "", "5"]


def test_variables_with_a_missing_underscore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that lacks an underscore is refused with a suggestion; variables that Kubernetes sets are ignored."""
    monkeypatch.setenv("TRIMARAN_PORT", "tcp://10.0.0.1:2020")
    monkeypatch.setenv("TRIMARAN_SERVER_PORT", "tcp://10.0.0.1:2020")
    monkeypatch.setenv("TRIMARAN_SERVICE_HOST", "10.0.0.1")
    assert load(WatcherSettings).settings.server.port == 2020
    monkeypatch.setenv("TRIMARAN_PROVIDER_NAME", "Fake")
    with pytest.raises(SettingsError, match=r"TRIMARAN_PROVIDER_NAME: .* TRIMARAN_PROVIDER__NAME"):
        load(WatcherSettings)


def test_invalid_json_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error about text that is not JSON says that JSON is expected, which the parser's own message does not."""
    monkeypatch.setenv("TRIMARAN_PROVIDER__HEADERS", "X-Scope-OrgID=prod")
    with pytest.raises(SettingsError, match=r"provider\.headers"):
        load(WatcherSettings)


@pytest.mark.parametrize(
    "name", ["provider.token", "provider.address", "kubelet.node_selector", "store.path", "watch.a"]
)
@pytest.mark.parametrize("origin", ["flag", "environment"])
def test_text_that_is_not_unicode_is_a_problem(monkeypatch: pytest.MonkeyPatch, name: str, origin: str) -> None:
    """Bytes that are not UTF-8 are named with their setting, and not met later, where text is encoded."""
    text = "a\udcffb"  # how Python reads a byte of the environment or the command line that is not UTF-8
    if origin == "environment":
        monkeypatch.setenv(environment_variable(name), text)
    with pytest.raises(SettingsError) as raised:
        load(WatcherSettings, {name: text} if origin == "flag" else {})
    (problem,) = raised.value.problems
    assert problem.startswith(name)
    assert problem.endswith(": is not UTF-8 text")


def test_settings_are_frozen() -> None:
    """Loaded settings cannot be changed."""
    with pytest.raises(ValueError, match="frozen"):
        load(WatcherSettings).settings.server.port = 1  # type: ignore[misc]


def test_problems_of_tables_in_lists_name_their_place(file: Path) -> None:
    """A problem in one of several tables names the table's index and key."""
    file.write_text(
        '[[fallback.providers]]\nname = "Host"\n[[fallback.providers]]\naddres = "http://p"\n'
        '[[prometheus.queries]]\nname = "x"\nquery = "up"\nscale = -1\n'
    )
    assert sorted(problems(file=file)) == [
        f"fallback.providers[1].addres ({file}): there is no such key",
        f"prometheus.queries[0].scale ({file}) = '-1': Input should be greater than 0",
        f"prometheus.queries[0].type ({file}): Field required",
    ]


def test_the_secrets_of_fallbacks_are_not_shown(file: Path) -> None:
    """A fallback's token is neither in ``trimaran config`` nor in the error about another key of the fallback."""
    file.write_text('[[fallback.providers]]\nname = "Prometheus"\ntoken = "hush"\naddress = "http://me:hush@p"\n')
    assert display(load(WatcherSettings, file=file).settings.fallback.providers) == "Prometheus"
    file.write_text('[[fallback.providers]]\nname = "Prometheus"\ntoken = "hush"\naddress = "me:hush@p"\n')
    (problem,) = problems(file=file)
    assert problem.startswith("fallback.providers")
    assert "hush" not in problem


# -- arbitrary input ----------------------------------------------------------------------------------------------

NAMES = st.sampled_from(list(setting_names(WatcherSettings))) | st.text()
WORDS = st.sampled_from(
    ["5m", "15m,5m", "0", "-1", "nan", "1e999", "true", "[]", "{}", '[{"name": "Host"}]', "http://["]
)
VALUES = WORDS | st.text() | st.none() | st.integers() | st.floats() | st.lists(st.text()) | st.binary()


@given(st.dictionaries(NAMES, VALUES))
def test_any_flags_are_settings_or_problems(flags: dict[str, Any]) -> None:
    """Any flags load as settings or raise a SettingsError that can be encoded."""
    try:
        load(WatcherSettings, flags)
    except SettingsError as error:
        str(error).encode("utf-8", "backslashreplace")


@given(st.dictionaries(NAMES.map(environment_variable), WORDS | st.text()))
def test_any_environment_is_settings_or_problems(variables: dict[str, str]) -> None:
    """Any environment loads as settings or raises SettingsError."""
    usable = {name: value for name, value in variables.items() if is_valid_in_the_environment(name, value)}
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SettingsError):
        for name, value in usable.items():
            patch.setenv(name, value)
        load(WatcherSettings)


def is_valid_in_the_environment(name: str, value: str) -> bool:
    """Return whether the operating system accepts this variable."""
    return "=" not in name and "\0" not in name + value and (name + value).isprintable()


@given(
    content=st.binary()
    | st.text(st.characters(codec="utf-8")).map(str.encode)
    | WORDS.map("x = {}".format).map(str.encode)
)
def test_any_file_is_settings_or_problems(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any file loads as settings or raises SettingsError."""
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(content)
    with contextlib.suppress(SettingsError):
        load(WatcherSettings, file=file)


@given(
    st.recursive(
        VALUES.filter(lambda value: isinstance(value, str | int)),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    NAMES,
)
def test_any_table_is_settings_or_problems(value: Any, name: str) -> None:
    """Any value of any setting, also nested, loads as settings or raises SettingsError."""
    with contextlib.suppress(SettingsError):
        load(WatcherSettings, {name: value})
