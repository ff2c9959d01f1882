"""One module builds the paths of the Kubernetes API, and one sends the requests for its objects."""

import ast
from pathlib import Path

import pytest

from runtime.kubernetes.paths import CORE, LISTS

ROOT = Path(__file__).parents[2]
PACKAGES = ("runtime", "watcher", "client", "scoring", "trimaran")
_HOME = "runtime/kubernetes/paths.py"
#: Modules that send requests for objects, and the clients that they send them by.
_SENDERS = {f"runtime/kubernetes/{name}.py" for name in ("object_requests", "api", "keep_alive")}
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


def requests_sent(source: str) -> list[str]:
    """Return the calls of a module that send a request to the Kubernetes API: those of ``send`` with a path."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        ast.unparse(call)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "send" and len(call.args) > 2
    ]


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


@pytest.mark.parametrize("package", PACKAGES)
def test_requests_for_objects_have_one_home(package: str) -> None:
    """Every write, and every read of a single object before one, is a function of one module."""
    files = [each.relative_to(ROOT) for each in (ROOT / package).rglob("*.py")]
    found = {str(file): requests_sent((ROOT / file).read_text()) for file in files if str(file) not in _SENDERS}
    assert {file: calls for file, calls in found.items() if calls} == {}


def test_the_check_detects_a_request() -> None:
    """A request with a method and a path is detected; bytes that a socket sends are not."""
    assert requests_sent('self._api.send("PATCH", path, deadline, body)') != []
    assert requests_sent("sock.send(data)\nwriter.send(event)") == []
