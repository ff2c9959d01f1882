"""One module builds the paths of the Kubernetes API."""

import ast
from pathlib import Path

import pytest

from runtime.kubernetes.paths import CORE, LISTS

ROOT = Path(__file__).parents[2]
PACKAGES = ("runtime", "watcher", "client", "scoring", "trimaran")
_HOME = "runtime/kubernetes/paths.py"
#: Prometheus and Datadog have an /api/v1, too, with other names.
_CORE = tuple(path for path in (*LISTS.values(), f"{CORE}/namespaces/") if path.startswith(CORE))


def literal_paths(source: str) -> list[str]:
    """Return the literal paths of the Kubernetes API in a module, without those in docstrings."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts
        and node.value.startswith(("/apis/", *_CORE))
    ]  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_paths_of_the_kubernetes_api_have_one_home(package: str) -> None:
    """Each path that is read or written comes from the module of paths."""
    files = [each.relative_to(ROOT) for each in (ROOT / package).rglob("*.py")]
    found = {str(file): literal_paths((ROOT / file).read_text()) for file in files if str(file) != _HOME}
    assert {file: paths for file, paths in found.items() if paths} == {}


def test_the_check_detects_a_path() -> None:
    """A path is detected, also at the beginning of an f-string; in a docstring or of another server it is not."""
    detected = 'a = "/apis/apps/v1/deployments"\nb = f"/api/v1/nodes/{a}"\n'
    assert literal_paths(detected) == ["/apis/apps/v1/deployments", "/api/v1/nodes/"]
    assert literal_paths('"""/api/v1/nodes"""\nc = "/api/v1/query_range"\n') == []
