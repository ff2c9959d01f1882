"""Write what kube-scheduler's Go sources say of its configuration to ``trimaran/kube_scheduler/table.json``.

    python tools/kube_scheduler_table.py     needs Go; downloads Kubernetes' modules into Go's module cache

The table has every struct of kubescheduler.config.k8s.io/v1 with the types of its keys, the extension points of each
plugin, the plugins that are enabled by default and the feature gates that matter, each with the Kubernetes version
since which it holds. To add a version, add its module to ``RELEASES``.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

RELEASES = {"1.33": "33.4", "1.34": "34.4", "1.35": "35.4", "1.36": "36.3", "1.37": "37.2"}
TABLE = Path(__file__).parent.parent / "trimaran" / "kube_scheduler" / "table.json"
_ROOT = "KubeSchedulerConfiguration"
_GATES = (
    "DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus", "DRASchedulerFilterTimeout",
    "DynamicResourceAllocation", "NodeDeclaredFeatures", "StorageCapacityScoring",
)  # fmt: skip
_DEFAULT_BY_GATE = {"DynamicResourceAllocation": "DynamicResources", "NodeDeclaredFeatures": "NodeDeclaredFeatures"}
_METHODS = {
    "PreEnqueue": "preEnqueue", "Less": "queueSort", "PreFilter": "preFilter", "Filter": "filter",
    "PostFilter": "postFilter", "PreScore": "preScore", "Score": "score", "Reserve": "reserve", "Permit": "permit",
    "PreBind": "preBind", "Bind": "bind", "PostBind": "postBind", "GeneratePlacements": "placementGenerate",
    "ScorePlacement": "placementScore", "PodGroupPostFilter": "podGroupPostFilter",
}  # fmt: skip
# Types with a JSON form of their own, and structs of other packages that stand for a package's type.
_TYPES = {
    "metav1.Duration": "duration", "runtime.RawExtension": "any", "[]byte": "bytes",
    "metav1.LabelSelector": "LabelSelector", "metav1.LabelSelectorOperator": "string",
}  # fmt: skip
_FOLDERS = {
    "kube-scheduler": ("config/v1",),
    "component-base": ("config/v1alpha1",),
    "api": ("core/v1",),
    "apimachinery": ("pkg/apis/meta/v1",),
}
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) (string|int32|int64|bool)$", re.MULTILINE)
_FIELD = re.compile(r'^\t(?:(\w+)\s+)?(\S+)\s+`[^`]*?json:"([^",]*)[^`]*`', re.MULTILINE)


def modules(version: str) -> Mapping[str, Path]:
    """Return the folders of a release's Kubernetes modules in Go's module cache, by name; download them if missing."""
    names = {f"k8s.io/{name}": f"v0.{RELEASES[version]}" for name in _FOLDERS}
    names["k8s.io/kubernetes"] = f"v1.{RELEASES[version]}"
    found = {}
    for module, tag in names.items():
        run = subprocess.run(
            ["go", "mod", "download", "-json", f"{module}@{tag}"],
            cwd=tempfile.gettempdir(), capture_output=True, text=True, check=True,
        )  # fmt: skip
        found[module.removeprefix("k8s.io/")] = Path(json.loads(run.stdout)["Dir"])
    return found


def structs(folders: Mapping[str, Path]) -> Mapping[str, Mapping[str, str]]:
    """Return the types of the keys of each struct that a configuration can contain."""
    text = "\n".join(
        file.read_text()
        for module, packages in _FOLDERS.items()
        for package in packages
        for file in sorted((folders[module] / package).glob("*types*.go"))
    )
    bodies, named = dict(_STRUCT.findall(text)), dict(_NAMED.findall(text))
    found: dict[str, Mapping[str, str]] = {}
    left = [_ROOT, *(name for name in bodies if name.endswith("Args"))]
    while left:
        name = left.pop()
        if name not in found:
            found[name] = dict(_fields(name, bodies, named))
            left += [kind for each in found[name].values() if (kind := re.sub(r"^.*[*\]]", "", each)) in bodies]
    return found


def _fields(struct: str, bodies: Mapping[str, str], named: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    body = re.sub(r"^\s*//.*\n", "", bodies[struct], flags=re.MULTILINE)
    for name, kind, key in _FIELD.findall(body):
        short = kind.rpartition(".")[2]
        if not name and short == "TypeMeta":
            yield from {"apiVersion": "string", "kind": "string"}.items()
        elif not name:
            yield from _fields(short, bodies, named)
        else:
            yield key, _type(kind, named)


def _type(kind: str, named: Mapping[str, str]) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    prefix = re.match(r"\*|\[\]|map\[string\]", kind)
    if prefix:
        return prefix[0] + _type(kind[prefix.end() :], named)
    short = kind.rpartition(".")[2]
    return named.get(short, short)


def plugins(kubernetes: Path) -> Mapping[str, list[str]]:
    """Return the extension points of each plugin: those whose methods its type has."""
    folder = kubernetes / "pkg/scheduler/framework/plugins"
    names = dict(re.findall(r'^\s*(\w+)\s*= "(\w+)"$', (folder / "names" / "names.go").read_text(), re.MULTILINE))
    found = {}
    for package in sorted(
        set(re.findall(r'plugins/(\w+)"', (folder / "registry.go").read_text())) - {"feature", "names"}
    ):
        text = "\n".join(
            file.read_text() for file in sorted((folder / package).glob("*.go")) if not file.name.endswith("_test.go")
        )
        constants = dict(re.findall(r"^\s*(?:const )?(\w+)\s*= names\.(\w+)$", text, re.MULTILINE))
        for receiver, constant in re.findall(
            r"^func \(\w* ?\*?(\w+)\) Name\(\) string \{\n\treturn (\w+)", text, re.MULTILINE
        ):
            methods = re.findall(rf"^func \(\w* ?\*?{receiver}\) (\w+)\(", text, re.MULTILINE)
            found[names[constants[constant]]] = sorted({_METHODS[each] for each in methods if each in _METHODS})
    return found


def gates(kubernetes: Path, version: str) -> set[str]:
    """Return the feature gates of ``_GATES`` that are on by default in a version."""
    text = (kubernetes / "pkg/features/kube_features.go").read_text()
    on = set()
    for gate in _GATES:
        body = re.search(rf"^\t{gate}: \{{\n(.*?)^\t\}}", text, re.MULTILINE | re.DOTALL)
        states = re.findall(r'MustParse\("1\.(\d+)"\), Default: (\w+)', body[1]) if body else []
        if [state for since, state in states if int(since) <= int(version.removeprefix("1."))][-1:] == ["true"]:
            on.add(gate)
    return on


def defaults(kubernetes: Path, on: set[str]) -> list[str]:
    """Return the plugins that are enabled at ``multiPoint`` by default."""
    text = (kubernetes / "pkg/scheduler/apis/config/v1/default_plugins.go").read_text()
    function = text[text.index("func getDefaultPlugins") : text.index("applyFeatureGates(plugins)")]
    return [
        *re.findall(r"Name: names\.(\w+)", function),
        *(_DEFAULT_BY_GATE[each] for each in sorted(on) if each in _DEFAULT_BY_GATE),
    ]


def spans(versions: Iterable[str]) -> list[str]:
    """Return the first of the versions in which something exists, and the last one unless that is the newest."""
    existing = list(versions)
    return existing[:1] if existing[-1] == list(RELEASES)[-1] else [existing[0], existing[-1]]


def main() -> None:
    """Write the table."""
    fields: dict[str, dict[str, dict[str, list[str]]]] = {}
    points: dict[str, dict[str, list[str]]] = {}
    on_gates: dict[str, list[str]] = {}
    enabled: dict[str, list[str]] = {}
    for version in RELEASES:
        folders = modules(version)
        for struct, keys in structs(folders).items():
            for key, kind in keys.items():
                fields.setdefault(struct, {}).setdefault(key, {}).setdefault(kind, []).append(version)
        for plugin, its_points in plugins(folders["kubernetes"]).items():
            for point in its_points:
                points.setdefault(plugin, {}).setdefault(point, []).append(version)
        on = gates(folders["kubernetes"], version)
        for gate in sorted(on):
            on_gates.setdefault(gate, []).append(version)
        for plugin in defaults(folders["kubernetes"], on):
            enabled.setdefault(plugin, []).append(version)
    table = {
        "source": "tools/kube_scheduler_table.py, of the Go modules k8s.io/kubernetes v1.N, and k8s.io/kube-scheduler, "
        "component-base, api and apimachinery v0.N, with N of " + ", ".join(RELEASES.values()),
        "structs": {
            struct: {key: [*kind, *spans(versions)] for key, kinds in keys.items() for *kind, versions in kinds.items()}
            for struct, keys in sorted(fields.items())
        },
        "plugins": {name: {point: spans(each) for point, each in its.items()} for name, its in sorted(points.items())},
        "defaults": {name: spans(each) for name, each in enabled.items()},
        "gates": {name: spans(each) for name, each in on_gates.items()},
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
