"""Chart and manifests are equal: objects of Helm and Kustomize for the same settings, one by one."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane import builds

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
CHART, KUSTOMIZE = ROOT / "deploy/helm/trimaran", ROOT / "deploy/kustomize"
PARTS = ("scheduler", "extender", "nodes", "rebalancer", "dashboard")
# Kustomize's components, and the equivalent values of the chart.
FEATURES = {
    "disruption-budgets": "podDisruptionBudget.enabled=true",
    "network-policies": "networkPolicy.enabled=true",
    "egress": "networkPolicy.egress.enabled=true",
    "monitoring": "serviceMonitor.enabled=true,prometheusRule.enabled=true,grafanaDashboard.enabled=true",
    "openshift": "platform=openshift",
    "kubelet": "provider.name=Kubelet",
    "without-page": "dashboard.inWatcher=false",
    "medium": "size=medium",
    "large": "size=large",
}
SCHEDULER_VERSION = "1.37.2"  # the version in the manifests; the chart uses the cluster's version
Objects = dict[tuple[str, str, str], dict[str, Any]]


def run(program: str, *arguments: str | Path) -> str:
    """Run a built program and return its output."""
    command = [builds.binary(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_helm(*values: str) -> Objects:
    """Return the chart's objects for a release ``trimaran`` in the namespace ``trimaran``, without Helm's hooks."""
    options = [word for value in values for word in ("--set", value)]
    place = ("--namespace", "trimaran", "--kube-version", SCHEDULER_VERSION, "--no-hooks")
    return comparable(run("helm", "template", "trimaran", CHART, *place, *options))


def by_kustomize(folder: Path) -> Objects:
    """Return the objects that Kustomize builds from a folder."""
    return comparable(run("kubectl", "kustomize", folder))


def kustomization(folder: Path, *components: str) -> Path:
    """Write a user's kustomization of the base with these components in this order; return its folder."""
    to = lambda path: os.path.relpath(path, folder)  # noqa: E731
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [to(ROOT / "deploy/kubernetes")],
        "components": [to(KUSTOMIZE / "components" / name) for name in components],
    }  # fmt: skip
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return folder


def comparable(text: str) -> Objects:
    """Return objects by kind, namespace and name, without intended differences.

    These are: labels of Helm and of a release, the namespace in names of cluster-wide objects, the annotation that
    replaces pods after changes, the namespace itself, and the name of one environment variable.
    """
    objects: Objects = {}
    for each in yaml.safe_load_all(text.replace("trimaran-trimaran-", "trimaran-")):
        if each and each["kind"] != "Namespace":
            simplify(each)
            if each["kind"] == "ConfigMap":
                each["data"] = {name: parsed(name, value) for name, value in each["data"].items()}
            metadata = each["metadata"]
            objects[each["kind"], metadata.get("namespace", ""), metadata["name"]] = each
    return objects


def simplify(value: Any) -> None:
    """Remove the intended differences from an object, at every depth."""
    if isinstance(value, dict):
        value.pop("annotations", None) if "trimaran.io/scoring" in str(value.get("annotations")) else None
        for label in ("instance", "version", "managed-by"):
            value.pop(f"app.kubernetes.io/{label}", None)
        value.pop("helm.sh/chart", None)
        if value.get("name") == "METRICS_PROVIDER_NAME":
            value["name"] = "TRIMARAN_PROVIDER__NAME"
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        simplify(inner)
    if isinstance(value, dict) and "env" in value:  # no variable refers to another, so their order is irrelevant
        value["env"].sort(key=lambda variable: variable["name"])


def parsed(name: str, text: str) -> Any:
    """Return the parsed file of a ConfigMap, with plugins sorted, because their order is irrelevant."""
    if name.endswith(".toml"):
        return tomllib.loads(text)
    document = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    for profile in document.get("profiles", ()):
        profile["plugins"]["score"]["enabled"].sort(key=lambda plugin: plugin["name"])
    return document


def without_others(*parts: str) -> list[str]:
    return [f"without-{part}" for part in PARTS if part not in parts]


@pytest.mark.parametrize("part", ["watcher", *PARTS, "standalone"])
def test_each_overlay_equals_the_chart_with_one_component(part: str) -> None:
    """Overlay and chart contain the same objects with the same contents."""
    values = [] if part == "watcher" else [f"{part}.enabled=true"]
    assert by_kustomize(KUSTOMIZE / "overlays" / part) == by_helm(*values)


@pytest.mark.parametrize("feature", FEATURES)
def test_each_kustomize_component_equals_a_value_of_the_chart(feature: str, tmp_path: Path) -> None:
    """With all parts enabled a component has the same effect as its value in the chart, and changes objects."""
    values = [f"{part}.enabled=true" for part in PARTS]
    changed = by_kustomize(kustomization(tmp_path, feature))
    assert changed == by_helm(*values, FEATURES[feature])
    assert changed != by_kustomize(kustomization(tmp_path))


def test_removed_parts_leave_no_objects(tmp_path: Path) -> None:
    """Components that remove parts also remove the objects that earlier components added to these parts."""
    features = ["disruption-budgets", "network-policies", "monitoring", "large"]
    objects = by_kustomize(kustomization(tmp_path, *features, *without_others("nodes")))
    assert objects == by_helm("nodes.enabled=true", *(FEATURES[each] for each in features))
    assert not [name for name in objects if "scheduler" in str(name) or "extender" in str(name)]


def test_the_plain_manifests_equal_the_base() -> None:
    """The manifest files together contain exactly the objects of the Kustomize base, each once."""
    others = {"kustomization.yaml", "rebalancer-act.yaml", "standalone-scheduler.yaml"}
    files = [each for each in (ROOT / "deploy/kubernetes").glob("*.yaml") if each.name not in others]
    plain = [comparable(each.read_text()) for each in files]
    together: Objects = {name: each for objects in plain for name, each in objects.items()}
    assert together == by_kustomize(ROOT / "deploy/kubernetes")
    assert len(together) == sum(map(len, plain))


def test_the_documented_overlay_can_be_built(tmp_path: Path) -> None:
    """Kustomize builds the overlay in docs/deploy.md with its registry, size and second scheduler."""
    page = (ROOT / "docs/deploy.md").read_text()
    text = page.partition("### With Kustomize")[2].partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "kustomization.yaml").write_text(text.replace("../trimaran", os.path.relpath(ROOT, tmp_path)))
    objects = by_kustomize(tmp_path)
    deployments = {name: each for (kind, _, name), each in objects.items() if kind == "Deployment"}
    assert deployments.keys() == {"trimaran-watcher", "trimaran-scheduler"}
    (watcher,) = deployments["trimaran-watcher"]["spec"]["template"]["spec"]["containers"]
    assert watcher["image"].startswith("registry.example.com/trimaran:")
    assert watcher["resources"]["requests"]["memory"] == "384Mi"
