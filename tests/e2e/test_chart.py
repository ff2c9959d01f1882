"""The Helm chart with Helm itself: linted, and installed in a real Kubernetes API."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from control_plane import builds
from control_plane.api import collection, names
from control_plane.cluster import ControlPlane

from scoring.kubernetes_version import KUBERNETES_VERSIONS
from trimaran.cli.dashboard import dashboard
from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config, validate_config
from trimaran.extender.settings import ExtenderSettings
from trimaran.soft_taints.settings import NodesSettings
from watcher.settings import WatcherSettings

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/trimaran"
ALL = (
    "replicas=2,size=large,podDisruptionBudget.enabled=true,networkPolicy.enabled=true,serviceMonitor.enabled=true,"
    "networkPolicy.egress.enabled=true,"
    "prometheusRule.enabled=true,grafanaDashboard.enabled=true,readersSecret.name=readers,readersSecret.key=tokens,"
    "provider.tokenSecret.name=provider,provider.tokenSecret.key=token,settings.store\\.history_megabytes=64"
)
PARTS = (
    "scheduler.enabled=true,scheduler.filter=closed,scheduler.settings.extender\\.filter_cpu_percent=85,"
    "extender.enabled=true,extender.clusterIP=10.0.0.77,nodes.enabled=true,nodes.windows={15m},"
    "nodes.settings.nodes\\.hot_percent=85,clientSecret.name=client,clientSecret.key=token,"
    "dashboard.enabled=true,dashboard.replicas=2,dashboard.secureCookie=true,"
    "dashboard.extender.address=https://trimaran-extender.trimaran.svc:2021,"
    "dashboard.extender.tokenSecret.name=reader,dashboard.extender.tokenSecret.key=token,"
    "dashboard.extender.caSecret.name=trimaran-extender-tls,dashboard.extender.caSecret.key=ca.crt,"
    "dashboard.extender.certificateSecret.name=reader,dashboard.extender.certificateSecret.key=client.pem"
)
FILTERS_IN_SHADOW = "scheduler.filter=open"
TWO_PLUGINS = (
    "scheduler.plugins[0].name=TargetLoadPacking,scheduler.plugins[0].weight=3,"
    "scheduler.plugins[0].args.targetUtilization=60,scheduler.plugins[1].name=Peaks,scheduler.plugins[1].weight=2"
)


def helm(*arguments: str | Path) -> str:
    """Run Helm and return its output."""
    command = [builds.binary("helm"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(*arguments: str) -> dict[tuple[str, str], dict]:
    """Return the objects of the chart, by kind and name."""
    text = helm("template", "trimaran", CHART, "--kube-version", "1.37.0", "--namespace", "trimaran", *arguments)
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}


def test_helm_lint_accepts_the_chart():
    """Strict linting passes with default values and with everything enabled."""
    helm("lint", "--strict", CHART)
    helm("lint", "--strict", CHART, "--set", ALL)
    helm("lint", "--strict", CHART, "--set", f"{ALL},{PARTS}")


REVIEWED = r"settings.workloads\.access=review"


def test_the_watcher_may_read_pods_only_if_it_measures_them() -> None:
    """Rules for pods and their owners follow workloads.enabled, the rule for their metrics the provider."""

    def readable(*arguments: str) -> set[str]:
        rules = render(*arguments)["ClusterRole", "trimaran-trimaran-watcher"]["rules"]
        return {f"{group}/{name}" for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}

    nodes = {"/nodes", "metrics.k8s.io/nodes"}
    owners = {"/pods", "apps/replicasets", "batch/jobs"}
    owners |= {"autoscaling/horizontalpodautoscalers", "autoscaling.k8s.io/verticalpodautoscalers"}
    reviews = {"authentication.k8s.io/tokenreviews", "authorization.k8s.io/subjectaccessreviews"}
    assert readable() == nodes | owners | {"metrics.k8s.io/pods"} | reviews
    assert readable("--set", "provider.name=Prometheus") == nodes | owners | reviews
    assert readable("--set", r"settings.workloads\.enabled=false") == nodes


TOKENS = "readersSecret.name=a,readersSecret.key=tokens,clientSecret.name=b,clientSecret.key=token"


@pytest.mark.parametrize(
    ("arguments", "access"),
    [("", "review"), (TOKENS, None), (r"settings.workloads\.access=auto", "auto"), (f"{REVIEWED},{TOKENS}", "review")],
)
def test_workloads_are_reviewed_unless_readers_have_tokens(arguments: str, access: str | None) -> None:
    """Without readers' tokens the watcher reviews who reads workloads; a setting decides otherwise, with the rights."""
    objects = render("--set", arguments)
    assert settings_of(container(objects, "watcher")).get("workloads", {}).get("access") == access
    rules = objects["ClusterRole", "trimaran-trimaran-watcher"]["rules"]
    assert any("tokenreviews" in rule["resources"] for rule in rules) == (access == "review")


def test_the_extender_sends_its_own_token_to_a_watcher_that_reviews() -> None:
    """An extender that reads workloads sends its account's token to a watcher that reviews it, without another one."""

    def token_file(*arguments: str) -> str | None:
        objects = render("--set", "extender.enabled=true,extender.tlsSecret=tls", *arguments)
        variables = {each["name"]: each.get("value") for each in container(objects, "extender").get("env", ())}
        return variables.get("TRIMARAN_CLUSTER__WATCHER_TOKEN_FILE")

    assert token_file() is None
    learns = r"extender.settings.extender\.learned_use=true"
    assert token_file("--set", learns) == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert token_file("--set", f"{learns},{REVIEWED},{TOKENS}") == "/run/watcher/token"


def container(objects: dict[tuple[str, str], dict], part: str, name: str = "") -> dict:
    """Return a container of a component's pod, the main one by default."""
    containers = objects["Deployment", f"trimaran-{part}"]["spec"]["template"]["spec"]["containers"]
    return next(each for each in containers if each["name"] == (name or part))


def settings_of(container: dict) -> dict[str, dict[str, str]]:
    """Return the settings in a container's environment variables, by section and key."""
    sections: dict[str, dict[str, str]] = {}
    for variable in container.get("env", ()):
        section, _, key = variable["name"].removeprefix("TRIMARAN_").lower().partition("__")
        sections.setdefault(section, {})[key] = variable.get("value", "from-the-pod")
    return sections


def test_environment_variables_are_valid_settings():
    """Each pod's environment variables are settings of its program, with valid values."""
    objects = render("--set", f"{ALL},{PARTS}")
    watcher = container(objects, "watcher")
    settings = WatcherSettings.model_validate(settings_of(watcher))
    assert (settings.server.compat_open, settings.server.metrics_open) == (True, False)  # Prometheus sends a token
    assert settings.store.history_megabytes == 64
    assert watcher["resources"]["requests"]["memory"] == "384Mi"
    for part, name in (("scheduler", "extender"), ("extender", "extender")):
        extender = ExtenderSettings.model_validate(settings_of(container(objects, part, name)))
        assert str(extender.cluster.watcher_token_file) == "/run/watcher/token"
        assert extender.extender.filter_cpu_percent == (85 if part == "scheduler" else 90)
    (clearing,) = objects["Job", "trimaran-nodes-clear"]["spec"]["template"]["spec"]["containers"]
    for each in (container(objects, "nodes"), clearing):
        nodes = NodesSettings.model_validate(settings_of(each)).nodes
        assert (nodes.hot_percent, nodes.lease_name) == (85, "trimaran-nodes")
    dashboard_settings = settings.dashboard
    assert (dashboard_settings.enabled, dashboard_settings.cluster) == (True, True)
    assert dashboard_settings.extender == "https://trimaran-extender.trimaran.svc:2021"
    assert files_of(objects, "watcher") == {
        str(dashboard_settings.token_file): ("reader", "token"),
        str(dashboard_settings.ca_file): ("trimaran-extender-tls", "ca.crt"),
        str(dashboard_settings.client_certificate): ("reader", "client.pem"),
    }
    open_to_all = render("--set", ALL)
    assert WatcherSettings.model_validate(settings_of(container(open_to_all, "watcher"))).server.metrics_open


def files_of(objects: dict[tuple[str, str], dict], part: str) -> dict[str, tuple[str, str]]:
    """Return a component's credentials for the services that it shows: path to the name and key of its secret."""
    spec = objects["Deployment", f"trimaran-{part}"]["spec"]["template"]["spec"]
    (volume,) = (each for each in spec["volumes"] if each["name"] == "services")
    (mount,) = (each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "services")
    return {
        f"{mount['mountPath']}/{item['path']}": (source["secret"]["name"], item["key"])
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }


def test_the_dashboard_accepts_its_arguments():
    """The program accepts the arguments of the dashboard's pod, with and without files, which are mounted."""
    objects = render("--set", f"{ALL},{PARTS}")
    _, *arguments = container(objects, "dashboard")["args"]
    parameters = dashboard.make_context("dashboard", list(arguments)).params
    assert (parameters["address"], parameters["host"]) == ("http://trimaran.trimaran:2020", "::")
    assert (parameters["port"], parameters["cluster"], parameters["secure_cookie"]) == (2022, True, True)
    files = [parameters[f"extender_access_{name}"] for name in ("token_file", "ca_file", "client_certificate")]
    assert sorted(map(str, files)) == sorted(files_of(objects, "dashboard"))
    plain = render("--set", "dashboard.enabled=true,dashboard.labels=false")
    assert container(plain, "dashboard")["args"][1:] == ["--watcher=http://trimaran.trimaran:2020", "--host=::"]
    pod = plain["Deployment", "trimaran-dashboard"]["spec"]["template"]["spec"]
    assert (pod["automountServiceAccountToken"], "volumes" in pod) == (False, False)
    assert ("ClusterRole", "trimaran-trimaran-dashboard") not in plain


def test_the_watcher_can_run_without_the_dashboard():
    """Without the dashboard in the watcher, its files are not mounted and its settings not set."""
    watcher = render("--set", f"{ALL},{PARTS},dashboard.inWatcher=false")["Deployment", "trimaran-watcher"]
    spec = watcher["spec"]["template"]["spec"]
    assert settings_of(spec["containers"][0])["dashboard"] == {"enabled": "false"}
    assert "services" not in str(spec["volumes"])


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize(
    "values",
    [
        "scheduler.filter=off", FILTERS_IN_SHADOW, f"{FILTERS_IN_SHADOW},scheduler.mode=active",
        "scheduler.schedulerName=gold", TWO_PLUGINS,
    ],
)  # fmt: skip
def test_the_schedulers_file_equals_the_rendered_configuration(values, version):
    """kube-scheduler's file equals the output of ``trimaran extender config`` and passes its checks.

    In shadow kube-scheduler does not call the filter, because it would have to score all nodes.
    """
    objects = render("--set", f"scheduler.enabled=true,{values}", "--kube-version", f"{version}.1")
    data = objects["ConfigMap", "trimaran-scheduler"]["data"]
    shipped, source = (yaml.safe_load(data[name]) for name in ("kube-scheduler.yaml", "scheduler.yaml"))
    endpoint = ExtenderEndpoint("http://127.0.0.1:2021", filters="mode=active" in values)
    expected = render_config(source, endpoint, version)
    for document in (shipped, expected):
        document["profiles"][0]["plugins"]["score"]["enabled"].sort(key=lambda plugin: plugin["name"])
        if not document["profiles"][0].get("pluginConfig"):
            document["profiles"][0].pop("pluginConfig", None)
    assert shipped == expected
    assert list(validate_config(shipped, kubernetes_version=version)) == []


@pytest.mark.parametrize("part", ["scheduler", "extender"])
def test_only_values_read_at_startup_replace_the_pods(part):
    """New plugins or an active filter change the pod template; mode and canary do not: a rollback needs no restart."""
    pods = {
        values: render("--set", f"{part}.enabled=true{values}")["Deployment", f"trimaran-{part}"]["spec"]["template"]
        for values in (
            "", f",{part}.mode=active,{part}.canary=50", f",{part}.mode=active,{part}.filter=open",
            f",{part}.plugins[0].name=Peaks,{part}.plugins[0].weight=1",
        )
    }  # fmt: skip
    default, active, *others = pods.values()
    assert active == default
    assert [pod for pod in others if pod == default] == []


def test_the_mode_replaces_no_extender_of_another_scheduler():
    """The extender alone with a filter is rolled back without a restart, as without a filter."""
    pods = [
        render("--set", f"extender.enabled=true,extender.filter=open,extender.mode={mode}")[
            "Deployment", "trimaran-extender"
        ]["spec"]["template"]
        for mode in ("shadow", "active")
    ]
    assert pods[0] == pods[1]


def test_only_a_closed_filter_and_soft_taints_may_patch_nodes():
    """The right to patch nodes comes only with a filter that makes pods wait, and with soft taints."""
    for values, patching in (
        ("scheduler.enabled=true,extender.enabled=true", set()),
        ("scheduler.enabled=true,scheduler.filter=closed,extender.enabled=true", {"trimaran-trimaran-scheduler"}),
        ("extender.enabled=true,extender.filter=closed", {"trimaran-trimaran-extender"}),
        ("nodes.enabled=true", {"trimaran-trimaran-nodes", "trimaran-trimaran-nodes-clear"}),
        ("nodes.enabled=true,nodes.clearOnUninstall=false", {"trimaran-trimaran-nodes"}),
    ):
        roles = {name: each for (kind, name), each in render("--set", values).items() if kind == "ClusterRole"}
        may = {name for name, role in roles.items() if any("patch" in rule["verbs"] for rule in role["rules"])}
        assert may == patching


def test_conflicting_values_are_refused():
    """The chart refuses a watcher with tokens but components without one, and only one of a scheduler's two files."""
    for values, message in (
        ("nodes.enabled=true,readersSecret.name=readers,readersSecret.key=tokens", "clientSecret"),
        ("scheduler.enabled=true,scheduler.configuration=x", "kubeSchedulerConfiguration"),
        ("nodes.taints=false", "nodes"),
        ("scheduler.settings.extender\\.mode=active", "extender.mode"),
    ):
        command = [builds.binary("helm"), "template", "trimaran", CHART, "--kube-version", "1.37.0", "--set", values]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode != 0
        assert message in done.stderr


def kind(group: str, name: str, plural: str) -> dict:
    """Return a CustomResourceDefinition that accepts any fields, for a kind of the Prometheus operator."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": name, "plural": plural}, "versions": [version],
        },
    }  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    """A cluster with the kinds of the Prometheus operator."""
    with ControlPlane(tmp_path) as cluster:
        for name in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
            definition = kind("monitoring.coreos.com", name, f"{name.lower()}s")
            cluster.api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=definition)
        yield cluster


def test_the_api_server_knows_every_field(cluster):
    """With everything enabled the API server accepts all objects under strict field validation."""
    cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trimaran"}})
    objects = render("--set", f"{ALL},{PARTS}")
    for each in objects.values():
        cluster.api.request("POST", collection(each), json=each, params={"fieldValidation": "Strict"})
    kinds = {kind for kind, _ in objects}
    assert {"PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "PodMonitor", "PrometheusRule"} <= kinds


def test_the_chart_is_installed_upgraded_and_removed(cluster):
    """The API server accepts two releases and an upgrade; uninstalling them leaves no objects."""
    at = ("--kubeconfig", str(cluster.kubeconfig()))
    install = ("install", "trimaran", CHART, *at, "--create-namespace")
    helm(*install, "--namespace", "one", "--set", "replicas=1")
    deployments = "/apis/apps/v1/deployments"
    assert names(cluster.api.items(deployments)) == ["trimaran-watcher"]  # every other component is disabled
    helm("upgrade", "trimaran", CHART, *at, "--namespace", "one", "--set", f"{ALL},{PARTS}")
    helm(*install, "--namespace", "two", "--set", "scheduler.enabled=true")
    deployment = cluster.api.get("/apis/apps/v1/namespaces/one/deployments/trimaran-watcher")
    assert deployment["spec"]["replicas"] == 2
    rule = cluster.api.get("/apis/monitoring.coreos.com/v1/namespaces/one/prometheusrules/trimaran-watcher")
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    grafana = cluster.api.get("/api/v1/namespaces/one/configmaps/trimaran-watcher-grafana")["data"]
    assert json.loads(grafana["trimaran.json"]) == json.loads((ROOT / "deploy/grafana/trimaran.json").read_text())
    ours = {"labelSelector": "app.kubernetes.io/name=trimaran"}
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    assert names(cluster.api.items(roles, **ours)) == [
        "one-trimaran-dashboard", "one-trimaran-extender", "one-trimaran-nodes", "one-trimaran-scheduler",
        "one-trimaran-watcher", "two-trimaran-watcher",
    ]  # fmt: skip
    readers = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings"
    assert len(cluster.api.items(readers, **ours)) == 2
    for namespace in ("one", "two"):
        helm("uninstall", "trimaran", *at, "--namespace", namespace, "--no-hooks")  # test_uninstall.py has the Job
    for path in (roles, readers, deployments, "/apis/policy/v1/poddisruptionbudgets"):
        assert cluster.api.items(path, **ours) == []
