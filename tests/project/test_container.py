"""Promises of the image, the compose file and the manifest, checked without a build."""

import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from support.certificates import Authority
from support.servers import need_server, run_server

import trimaran
from runtime.settings.loading import load
from watcher.providers.prometheus.queries import queries
from watcher.settings import PrometheusSettings, WatcherSettings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
MANIFEST = {
    (document["kind"], document["metadata"]["name"]): document
    for document in yaml.safe_load_all((ROOT / "deploy/kubernetes/watcher.yaml").read_text())
}
POD = MANIFEST["Deployment", "trimaran-watcher"]["spec"]["template"]["spec"]
IMAGE = f"trimaran:{trimaran.__version__}"


def _instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", "")
    return [(line.split()[0], line.split(maxsplit=1)[1].strip()) for line in text.splitlines() if line.strip()]


def _stage(name: str | None = None) -> list[tuple[str, str]]:
    """Return the instructions of a stage, with those of the stage that it begins with; the last stage by default."""
    stages: dict[str, list[tuple[str, str]]] = {}
    for instruction, arguments in _instructions():
        if instruction == "FROM":
            source, *_, target = arguments.split() if " AS " in arguments else (*arguments.split(), "")
            stages[target] = list(stages.get(source, []))
        elif stages:
            stages[target].append((instruction, arguments))
    return stages[name] if name is not None else next(reversed(stages.values()))


def _copied_from_context() -> list[str]:
    return [
        source
        for name, arguments in _instructions()
        if name == "COPY" and "--from=" not in arguments
        for source in arguments.split()[:-1]
    ]


def _run(*command: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def test_hadolint_accepts_the_dockerfile():
    """The linter, a development dependency, reports nothing about the Dockerfile."""
    done = _run(str(Path(sys.executable).with_name("hadolint")), str(ROOT / "Dockerfile"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_everything_copied_exists_and_every_package_is_copied():
    """Every copied file exists, and every package of the wheel is copied to the image."""
    copied = _copied_from_context()
    assert [source for source in copied if not (ROOT / source).exists()] == []
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) <= set(copied)


def test_the_build_context_has_only_copied_files():
    """The ignore file excludes everything first, so the context never has .git, secrets or databases."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    included = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert sorted(included) == sorted(_copied_from_context())
    excluded_again = lines[1 + len(included) :]
    assert {"**/__pycache__", "**/.env*", "**/*.sqlite*"} <= set(excluded_again)
    assert not any(line.startswith("!") for line in excluded_again)


def test_the_image_installs_locked_wheels_only():
    """Every pip install from the network verifies hashes, and apt installs nothing."""
    for name, arguments in _instructions():
        if name == "RUN":
            assert "apt" not in arguments.split()
            for command in arguments.split("&&"):
                if " install " in command and "pip" in command:
                    assert "--require-hashes" in command or "--no-index" in command, command


@pytest.mark.slow
def test_the_builder_stage_builds(tmp_path):
    """The COPY and RUN lines of both builders work in a fresh environment instead of the base image."""
    base, context, target = tmp_path / "base", tmp_path / "context", tmp_path / "trimaran"
    context.mkdir()
    subprocess.run([sys.executable, "-m", "venv", base], check=True)
    environment = {**os.environ, "PATH": f"{base / 'bin'}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    instructions = _instructions()
    final = [index for index, (name, _) in enumerate(instructions) if name == "FROM"][2]
    for name, arguments in instructions[:final]:
        if name == "COPY":
            *sources, to = arguments.split()
            for source in sources:
                _copy(ROOT / source, context / to)
        elif name == "RUN":
            command = arguments.replace("/opt/trimaran", str(target))
            done = subprocess.run(
                ["sh", "-ec", command], cwd=context, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    done = _run(str(target / "bin/trimaran"), "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert trimaran.__version__ in done.stdout


def _copy(source: Path, to: Path) -> None:
    """Copy like COPY: the contents of a folder, or a file into a folder."""
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        to.mkdir(exist_ok=True)
        shutil.copy(source, to)


@pytest.mark.parametrize(("builder", "has_format"), [("docker", False), ("podman", True), ("/usr/bin/buildah", True)])
def test_podman_builds_in_the_format_with_a_health_check(builder, has_format):
    """Podman and buildah get ``--format docker``, as OCI images have no health check; docker lacks the option."""
    done = _run("make", "--no-print-directory", "--dry-run", "image", f"DOCKER={builder}", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert ("build --format docker" in done.stdout) is has_format


@pytest.mark.parametrize(
    ("builder", "options"),
    [("docker", ("--sbom=true", "--push", "--tag r.io/t:")), ("podman", ("--manifest r.io/t:",))],
)
def test_an_image_supports_several_platforms(builder, options):
    """For several platforms docker's buildx pushes the image with an SBOM, and podman creates a manifest."""
    done = _run(
        "make",
        "--no-print-directory",
        "--dry-run",
        "image",
        f"DOCKER={builder}",
        "PLATFORMS=A,B",
        "IMAGE=r.io/t",
        cwd=ROOT,
    )
    assert done.stdout.startswith(f"{builder} {'buildx ' if builder == 'docker' else ''}build ")
    assert [option for option in ("--platform A,B", *options) if option not in done.stdout] == []


def test_the_image_runs_the_watcher_as_nobody_on_all_addresses(monkeypatch):
    """The image runs as a numeric user, which Kubernetes can check, and sets only existing settings."""
    stage = dict(_stage())
    assert stage["USER"] == "65532:65532"
    assert json.loads(stage["ENTRYPOINT"]) == ["trimaran"]
    assert json.loads(stage["CMD"]) == ["watch"]
    assert stage["VOLUME"] == "/var/lib/trimaran"
    for name, value in re.findall(r"(TRIMARAN_\w+)=(\S+)", stage["ENV"]):
        monkeypatch.setenv(name, value)
    settings = load(WatcherSettings).settings
    assert (settings.server.host, settings.server.port, settings.log.format) == ("::", 2020, "json")
    assert str(settings.store.path) == "/var/lib/trimaran/watcher.sqlite"


def test_the_slim_image_lacks_only_what_the_page_needs():
    """The target slim removes dash, plotly and the packages that only they need; else it is the same image."""
    ((_, removal),) = _stage("slim-builder")[len(_stage("builder")) :]
    removed = set(re.search(r"--yes ([\w -]+?) &&", removal)[1].split())
    assert removed == _needed_only_by({"dash", "plotly"})
    slim, full = _stage("slim"), _stage()
    assert ("COPY", "--from=slim-builder /opt/trimaran /opt/trimaran") in slim
    assert [each for each in full if each not in slim] == [("COPY", "--from=builder /opt/trimaran /opt/trimaran")]
    added = dict(each for each in slim if each not in full)
    assert added["ENV"] == "TRIMARAN_DASHBOARD__ENABLED=false"


def _needed_only_by(packages: set[str]) -> set[str]:
    """Return the packages, and the packages of the lock that nothing else needs."""
    users: dict[str, set[str]] = {}
    for line in (ROOT / "requirements/run.txt").read_text().splitlines():
        if name := re.match(r"[\w.-]+(?===)", line):
            package = users.setdefault(name[0], set())
        elif user := re.match(r" +# +(?:via +)?(\S+)", line):
            package.add(user[1])
    while more := {
        name for name, by in users.items() if name not in packages and by - {"via"} and by - {"via"} <= packages
    }:
        packages = packages | more
    return packages


@contextmanager
def _watcher_that_answers(status: int, certificate: Path | None = None):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, *_):
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        with run_server(server):
            yield server.server_port


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_requests_livez_on_the_configured_port_without_a_proxy(tmp_path, status, healthy, secured):
    """The image's own command succeeds only for a live server, by HTTP and by HTTPS."""
    _, _, words = dict(_stage())["HEALTHCHECK"].partition("CMD ")
    program, *arguments = json.loads(words)
    assert program == "python"
    certificate = Authority(tmp_path, "authority").issue("watcher") if secured else None
    with _watcher_that_answers(status, certificate) as port:
        environment = {"TRIMARAN_SERVER__PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
        if secured:
            environment["TRIMARAN_SERVER__CERTIFICATE"] = str(certificate)
        assert (_run(sys.executable, *arguments, env=environment).returncode == 0) is healthy
    assert _run(sys.executable, *arguments, env=environment).returncode != 0  # no server


@pytest.mark.server
def test_docker_compose_accepts_the_file():
    """docker-compose, also the old one of stable distributions, accepts the file."""
    done = _compose_config("docker-compose.yml")
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(SERVICES)


@pytest.mark.server
def test_compose_requires_a_token_with_the_second_file(monkeypatch):
    """With deploy/compose/token.yml the watcher requires TRIMARAN_SERVER__TOKEN, and compose needs the variable."""
    files = ("docker-compose.yml", "deploy/compose/token.yml")
    monkeypatch.delenv("TRIMARAN_SERVER__TOKEN", raising=False)
    refused = _compose_config(*files)
    assert refused.returncode != 0
    assert "set TRIMARAN_SERVER__TOKEN" in refused.stderr
    monkeypatch.setenv("TRIMARAN_SERVER__TOKEN", "a-token-of-the-test")
    done = _compose_config(*files)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert set(services) == set(SERVICES)
    assert services["watcher"]["environment"].items() >= SERVICES["watcher"]["environment"].items()
    for name, value in services["watcher"]["environment"].items():
        monkeypatch.setenv(name, value)
    token = load(WatcherSettings).settings.server.token
    assert token is not None
    assert token.get_secret_value() == "a-token-of-the-test"


def _compose_config(*files):
    """Return the result of ``docker-compose config`` for some files."""
    if shutil.which("docker-compose") is None and _has_compose_plugin():
        command = [shutil.which("docker"), "compose"]
    else:
        command = [need_server("docker-compose")]
    options = [part for file in files for part in ("--file", str(ROOT / file))]
    return _run(*command, *options, "config", cwd=ROOT)


def _has_compose_plugin() -> bool:
    docker = shutil.which("docker")
    return docker is not None and _run(docker, "compose", "version").returncode == 0


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_pinned_confined_and_checked(name):
    """Each service has a version, minimal rights, a restart policy, a limit, a health check and only local ports."""
    service = SERVICES[name]
    assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["mem_limit"]
    assert not {"privileged", "network_mode", "pid", "cap_add", "devices"} & set(service)
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert "healthcheck" in service or service["image"] == IMAGE  # our image defines its own
    for volume in service.get("volumes", []):
        source, _, target = volume.partition(":")
        assert source in COMPOSE["volumes"] or ((ROOT / source).is_file() and target.endswith(":ro"))


def test_compose_serves_the_watcher_at_the_readmes_address(monkeypatch):
    """The watcher listens on localhost:2020 and reads from the prometheus service; each setting exists."""
    watcher = SERVICES["watcher"]
    assert watcher["ports"] == ["127.0.0.1:2020:2020"]
    assert watcher["volumes"] == ["watcher:/var/lib/trimaran"]
    for name, value in watcher["environment"].items():
        monkeypatch.setenv(name, value)
    provider = load(WatcherSettings).settings.provider
    assert (provider.name, provider.address) == ("Prometheus", "http://prometheus:9090")


def test_prometheus_scrapes_node_exporter_under_the_name_of_a_node():
    """Prometheus scrapes every 5 s, and labels node_exporter with a node's name, not a container's."""
    config = yaml.safe_load((ROOT / "deploy/compose/prometheus.yml").read_text())
    assert config["global"] == {"scrape_interval": "5s", "evaluation_interval": "5s"}
    jobs = {job["job_name"]: job["static_configs"] for job in config["scrape_configs"]}
    assert jobs["node-exporter"] == [{"targets": ["node-exporter:9100"], "labels": {"instance": "node-1"}}]
    mounted = {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    assert set(config["rule_files"]) <= mounted


@pytest.mark.server
def test_the_recording_rules_have_the_providers_names_and_the_right_values(tmp_path):
    """The rules yield the right ratios for two processors that are busy for 18 of 120 seconds.

    4 of 16 bytes of memory are used, with and without MemAvailable. The second node is two minutes old.
    """
    rules = yaml.safe_load((ROOT / "deploy/compose/rules.yml").read_text())["groups"][0]["rules"]
    assert [rule["record"] for rule in rules] == [q.name for q in queries(PrometheusSettings()) if q.required]
    promtool = need_server("promtool")
    busy = {"user": 4, "system": 2, "idle": 45, "iowait": 5, "steal": 4}  # seconds a minute
    shares = [("0", busy), ("1", {**busy, "user": 8, "system": 4, "idle": 39})]
    series = [
        {"series": f'node_cpu_seconds_total{{{_node(node)},cpu="{cpu}",mode="{mode}"}}', "values": values}
        for cpu, share in shares
        for mode, seconds in share.items()
        for node, values in ((1, f"0+{seconds}x10"), (2, f"_x8 0+{seconds}x2"))
    ]
    for node, memory in (
        (1, {"MemTotal": 16, "MemAvailable": 12}),
        (2, {"MemTotal": 16, "Buffers": 1, "Cached": 2, "MemFree": 8, "Slab": 1}),
    ):
        series += [
            {"series": f"node_memory_{name}_bytes{{{_node(node)}}}", "values": f"{value}x10"}
            for name, value in memory.items()
        ]
    expected = {
        "instance:node_cpu:ratio": {1: 18 / 60 / 2, 2: 18 / 60 / 2},
        "instance:node_memory_utilisation:ratio": {1: 0.25, 2: 0.25},
    }
    test = {
        "rule_files": [str(ROOT / "deploy/compose/rules.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": f"round({record}, 1e-6)",  # a floating-point sum depends on the order
                        "eval_time": "10m",
                        "exp_samples": [
                            {"labels": f"{{{_node(node)}}}", "value": value} for node, value in values.items()
                        ],
                    }
                    for record, values in expected.items()
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    done = _run(promtool, "test", "rules", str(tmp_path / "test.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def _node(number: int) -> str:
    return f'instance="node-{number}",job="node-exporter"'


def test_compose_and_manifest_name_the_version_of_the_project():
    """The compose file and the manifest use the image with the project's version."""
    assert SERVICES["watcher"]["image"] == IMAGE
    assert [container["image"] for container in POD["containers"]] == [IMAGE]


def test_liveness_and_readiness_use_their_own_routes():
    """The liveness probe requests /livez, which ignores the provider; the readiness probe requests /readyz."""
    (container,) = POD["containers"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 2020, "protocol": "TCP"}]
    assert {"requests", "limits"} <= set(container["resources"])


def test_the_pod_meets_the_restricted_pod_security_standard():
    """The pod meets the restricted standard, which its namespace enforces."""
    labels = MANIFEST["Namespace", "trimaran"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    security = POD["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 65532)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = POD["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == "/var/lib/trimaran"
    assert {volume["name"] for volume in POD["volumes"]} == {mount["name"]}


def test_the_account_may_only_read_nodes_pods_and_their_owners():
    """The watcher's role has no wildcards and no secrets, and it writes nothing but reviews, which are not stored."""
    rules = MANIFEST["ClusterRole", "trimaran-watcher"]["rules"]
    rights = {
        (group, resource): set(rule["verbs"])
        for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]
    }  # fmt: skip
    assert rights == {
        ("", "nodes"): {"get", "list"}, ("", "pods"): {"list", "watch"},
        ("apps", "replicasets"): {"list", "watch"}, ("batch", "jobs"): {"list", "watch"},
        ("autoscaling", "horizontalpodautoscalers"): {"list"},
        ("autoscaling.k8s.io", "verticalpodautoscalers"): {"list"},
        ("metrics.k8s.io", "nodes"): {"list"}, ("metrics.k8s.io", "pods"): {"list"},
        ("authentication.k8s.io", "tokenreviews"): {"create"},
        ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
    }  # fmt: skip
    binding = MANIFEST["ClusterRoleBinding", "trimaran-watcher"]
    assert binding["roleRef"]["name"] == "trimaran-watcher"
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (POD["serviceAccountName"], "trimaran")


@pytest.mark.parametrize(("name", "publishes_not_ready"), [("trimaran", False), ("trimaran-compat", True)])
def test_the_services_select_the_pod(name, publishes_not_ready):
    """Both services select the pod; the one for Go plugins also if not ready, or they keep old metrics forever."""
    service = MANIFEST["Service", name]["spec"]
    deployment = MANIFEST["Deployment", "trimaran-watcher"]["spec"]
    assert service["selector"] == deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert service["ports"] == [{"name": "http", "port": 2020, "targetPort": "http", "protocol": "TCP"}]
    assert service.get("publishNotReadyAddresses", False) is publishes_not_ready
