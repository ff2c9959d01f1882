"""Chart and manifests say the same: what Helm and Kustomize make of equal settings, object by object."""

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
PARTS = ("scheduler", "extender", "nodes", "dashboard")
# Kustomize's components, and the values that are said to be the same.
FEATURES = {
    "disruption-budgets": "podDisruptionBudget.enabled=true",
    "network-policies": "networkPolicy.enabled=true",
    "monitoring": "serviceMonitor.enabled=true,prometheusRule.enabled=true,grafanaDashboard.enabled=true",
    "openshift": "platform=openshift",
    "without-page": "dashboard.inWatcher=false",
    "medium": "size=medium",
    "large": "size=large",
}
SCHEDULER_VERSION = "1.36.3"  # the manifests name it; the chart takes the cluster's
Objects = dict[tuple[str, str, str], dict[str, Any]]


def run(program: str, *arguments: str | Path) -> str:
    """Run a built program and return what it printed."""
    command = [builds.binary(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_helm(*values: str) -> Objects:
    """Return what the chart makes, released as ``trimaran`` in the namespace ``trimaran``."""
    given = [word for value in values for word in ("--set", value)]
    place = ("--namespace", "trimaran", "--kube-version", SCHEDULER_VERSION)
    return compared(run("helm", "template", "trimaran", CHART, *place, *given))


def by_kustomize(folder: Path) -> Objects:
    """Return what Kustomize makes of a folder."""
    return compared(run("kubectl", "kustomize", folder))


def kustomization(folder: Path, *components: str) -> Path:
    """Write a user's own kustomization, over the base, with these components in this order."""
    to = lambda path: os.path.relpath(path, folder)  # noqa: E731
    wanted = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [to(ROOT / "deploy/kubernetes")],
        "components": [to(KUSTOMIZE / "components" / name) for name in components],
    }  # fmt: skip
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    return folder


def compared(text: str) -> Objects:
    """Return objects by kind, namespace and name, without what is meant to differ.

    That is: Helm's labels and the ones of a release, the namespace in names of cluster-wide objects, the annotation
    that makes new pods, the namespace itself, and one variable's name.
    """
    found: Objects = {}
    for each in yaml.safe_load_all(text.replace("trimaran-trimaran-", "trimaran-")):
        if each and each["kind"] != "Namespace":
            simplify(each)
            if each["kind"] == "ConfigMap":
                each["data"] = {name: parsed(name, value) for name, value in each["data"].items()}
            metadata = each["metadata"]
            found[each["kind"], metadata.get("namespace", ""), metadata["name"]] = each
    return found


def simplify(value: Any) -> None:
    """Take out of an object, at every depth, what is meant to differ."""
    if isinstance(value, dict):
        value.pop("annotations", None) if "trimaran.io/scoring" in str(value.get("annotations")) else None
        for label in ("instance", "version", "managed-by"):
            value.pop(f"app.kubernetes.io/{label}", None)
        value.pop("helm.sh/chart", None)
        if value.get("name") == "METRICS_PROVIDER_NAME":
            value["name"] = "TRIMARAN_PROVIDER__NAME"
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        simplify(inner)
    if isinstance(value, dict) and "env" in value:  # no variable is made of another: their order says nothing
        value["env"].sort(key=lambda variable: variable["name"])


def parsed(name: str, text: str) -> Any:
    """Return what a file of a ConfigMap says; the order of plugins is of no meaning."""
    if name.endswith(".toml"):
        return tomllib.loads(text)
    made = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    for profile in made.get("profiles", ()):
        profile["plugins"]["score"]["enabled"].sort(key=lambda plugin: plugin["name"])
    return made


def without(*kept: str) -> list[str]:
    return [f"without-{part}" for part in PARTS if part not in kept]


@pytest.mark.parametrize("part", ["watcher", *PARTS])
def test_each_overlay_is_the_chart_with_one_part(part: str) -> None:
    """Every object of one is in the other, and says the same."""
    values = [] if part == "watcher" else [f"{part}.enabled=true"]
    assert by_kustomize(KUSTOMIZE / "overlays" / part) == by_helm(*values)


@pytest.mark.parametrize("feature", FEATURES)
def test_each_component_is_a_value_of_the_chart(feature: str, tmp_path: Path) -> None:
    """With all parts."""
    values = [f"{part}.enabled=true" for part in PARTS]
    changed = by_kustomize(kustomization(tmp_path, feature))
    assert changed == by_helm(*values, FEATURES[feature])
    assert changed != by_kustomize(kustomization(tmp_path))


def test_components_leave_out_what_they_added(tmp_path: Path) -> None:
    """With all features, and two parts left out behind them, nothing of those parts is there."""
    features = ["disruption-budgets", "network-policies", "monitoring", "large"]
    made = by_kustomize(kustomization(tmp_path, *features, *without("nodes")))
    assert made == by_helm("nodes.enabled=true", *(FEATURES[each] for each in features))
    assert not [name for name in made if "scheduler" in str(name) or "extender" in str(name)]


def test_the_plain_manifests_are_the_base() -> None:
    """The files that `kubectl apply -f` takes are all that the base is made of, each object in one of them."""
    files = [each for each in (ROOT / "deploy/kubernetes").glob("*.yaml") if each.name != "kustomization.yaml"]
    plain = [compared(each.read_text()) for each in files]
    together: Objects = {name: each for objects in plain for name, each in objects.items()}
    assert together == by_kustomize(ROOT / "deploy/kubernetes")
    assert len(together) == sum(map(len, plain))


def test_the_documented_overlay_is_built(tmp_path: Path) -> None:
    """The one that docs/deploy.md shows: another registry, a large cluster, monitored, with the second scheduler."""
    page = (ROOT / "docs/deploy.md").read_text()
    text = page.partition("### With Kustomize")[2].partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "kustomization.yaml").write_text(text.replace("../trimaran", os.path.relpath(ROOT, tmp_path)))
    made = by_kustomize(tmp_path)
    deployments = {name: each for (kind, _, name), each in made.items() if kind == "Deployment"}
    assert deployments.keys() == {"trimaran-watcher", "trimaran-scheduler"}
    (watcher,) = deployments["trimaran-watcher"]["spec"]["template"]["spec"]["containers"]
    assert watcher["image"].startswith("registry.example.com/trimaran:")
    assert watcher["resources"]["requests"]["memory"] == "384Mi"
