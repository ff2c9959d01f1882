"""The Helm chart, by Helm itself: linted, and installed on a real Kubernetes API."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from control_plane import builds
from control_plane.cluster import ControlPlane

from watcher.settings import Settings

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy/helm/trimaran"
ALL = (
    "replicas=2,size=large,podDisruptionBudget.enabled=true,networkPolicy.enabled=true,serviceMonitor.enabled=true,"
    "prometheusRule.enabled=true,grafanaDashboard.enabled=true,readersSecret.name=readers,readersSecret.key=tokens,"
    "provider.tokenSecret.name=provider,provider.tokenSecret.key=token,settings.store\\.history_megabytes=64"
)


def helm(*arguments: str | Path) -> str:
    """Run Helm and return what it printed."""
    command = [builds.binary("helm"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(*arguments: str) -> dict[tuple[str, str], dict]:
    """Return what the chart makes, by kind and name."""
    text = helm("template", "trimaran", CHART, "--kube-version", "1.36.0", "--namespace", "trimaran", *arguments)
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}


def test_the_chart_is_linted():
    """Strictly, as it is and with everything on."""
    helm("lint", "--strict", CHART)
    helm("lint", "--strict", CHART, "--set", ALL)


def test_the_pod_is_that_of_the_plain_manifest():
    """With the usual values it is the same pod, but for the names of accounts and the name of one variable."""
    made = rendered()["Deployment", "trimaran-watcher"]["spec"]
    plain = next(
        each for each in yaml.safe_load_all((ROOT / "deploy/kubernetes/watcher.yaml").read_text())
        if each["kind"] == "Deployment"
    )["spec"]  # fmt: skip
    for spec in (made, plain):
        spec["template"]["spec"]["containers"][0].pop("env")
        spec["template"].pop("metadata")
        spec.pop("selector")
    assert made == plain


def test_its_settings_are_settings():
    """Each variable of the pod is one that the watcher knows, with a value that it takes."""
    (container,) = rendered("--set", ALL)["Deployment", "trimaran-watcher"]["spec"]["template"]["spec"]["containers"]
    sections: dict[str, dict[str, str]] = {}
    for variable in container["env"]:
        section, _, key = variable["name"].removeprefix("TRIMARAN_").lower().partition("__")
        sections.setdefault(section, {})[key] = variable["value"]
    settings = Settings.model_validate(sections)
    assert (settings.server.compat_open, settings.server.metrics_open) == (True, True)
    assert settings.store.history_megabytes == 64
    assert container["resources"]["requests"]["memory"] == "384Mi"


def kind(group: str, name: str, plural: str) -> dict:
    """Return a kind of the Prometheus operator, which takes anything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": name, "plural": plural}, "versions": [version],
        },
    }  # fmt: skip


def test_it_is_installed_changed_and_removed(tmp_path_factory):
    """A real API server takes every object, also of a second release; nothing is left after both are removed."""
    group = "monitoring.coreos.com"
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        kinds = [kind(group, "ServiceMonitor", "servicemonitors"), kind(group, "PrometheusRule", "prometheusrules")]

        for each in kinds:
            cluster.api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=each)
        at = ("--kubeconfig", str(cluster.kubeconfig()))
        install = ("install", "trimaran", CHART, *at, "--namespace", "one", "--create-namespace")
        helm(*install, "--set", "replicas=1")
        helm("upgrade", "trimaran", CHART, *at, "--namespace", "one", "--set", ALL)
        helm("install", "trimaran", CHART, *at, "--namespace", "two", "--create-namespace")
        deployment = cluster.api.get("/apis/apps/v1/namespaces/one/deployments/trimaran-watcher")
        assert deployment["spec"]["replicas"] == 2
        rule = cluster.api.get(f"/apis/{group}/v1/namespaces/one/prometheusrules/trimaran-watcher")
        alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
        assert rule["spec"] == alerts
        dashboard = cluster.api.get("/api/v1/namespaces/one/configmaps/trimaran-watcher-grafana")["data"]
        assert json.loads(dashboard["trimaran.json"]) == json.loads((ROOT / "deploy/grafana/trimaran.json").read_text())
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        ours = {"labelSelector": "app.kubernetes.io/name=trimaran"}
        assert len(cluster.api.items(roles, **ours)) == 2
        for namespace in ("one", "two"):
            helm("uninstall", "trimaran", *at, "--namespace", namespace)
        assert cluster.api.items(roles, **ours) == []
        assert cluster.api.items("/apis/apps/v1/deployments", **ours) == []
