"""Verdict of a kube-scheduler program on a configuration file.

The program runs with ``--write-config-to`` on a copy of the file: it validates the copy, writes the result, and exits
without sending requests. The copy names an invented kubeconfig, and no certificate files that this machine lacks.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import orjson
import yaml

from runtime.parsing import compose_yaml
from trimaran.kube_scheduler.findings import FileProblem, StartVerdict
from trimaran.kube_scheduler.go_yaml import scalar_value

_SECONDS = 60.0
_KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
"""
_VERSION = re.compile(r"Kubernetes (v\S+)")
_ERROR = re.compile(r'err="((?:[^"\\]|\\.)*)"')
_NOT_ABOUT_THE_FILE = re.compile(
    r"unknown flag|no space left|permission denied|too many open files|cannot allocate memory"
)
_MISSING = re.compile(r'Plugin "([^"]*)" does not exist')
_FILES = ("caFile", "certFile", "keyFile")


@dataclass(frozen=True)
class KubeSchedulerProgram:
    """Executable of a kube-scheduler, with the plugins of Kubernetes and possibly others.

    Attributes:
        path: path of the program.
    """

    path: Path

    @cached_property
    def judge(self) -> str:
        """Name and version, such as ``kube-scheduler v1.37.2``.

        Raises:
            ValueError: the program cannot be run, or is not a kube-scheduler.
        """
        try:
            match = _VERSION.search(_run(self.path, "--version").stdout)
        except subprocess.TimeoutExpired:
            match = None
        if match is None:
            raise ValueError(f"{self.path} is not a kube-scheduler: --version does not print a version of Kubernetes")
        return f"kube-scheduler {match[1]}"

    def verdict(self, text: bytes) -> StartVerdict:
        """Run the program to find out whether it starts with a configuration file.

        Raises:
            ValueError: the program cannot be run, or is not a kube-scheduler.
        """
        judge = self.judge
        with tempfile.TemporaryDirectory() as folder:
            copy, kubeconfig, written = (Path(folder) / name for name in ("file.yaml", "kubeconfig", "written.yaml"))
            kubeconfig.write_text(_KUBECONFIG)
            changed, absent = _portable(text, kubeconfig)
            copy.write_bytes(changed)
            flags = ["--config", str(copy), "--write-config-to", str(written), "--cert-dir", folder]
            try:
                run = _run(self.path, *flags, "--secure-port", "0", "--master", "http://127.0.0.1:1")
            except subprocess.TimeoutExpired:
                return StartVerdict(
                    unchecked=(FileProblem("", f"the program did not exit within {_SECONDS:.0f} s"),), judge=judge
                )
            if run.returncode == 0 and written.exists():
                return StartVerdict(unchecked=tuple(absent), judge=judge)
        reason = _reason(run.stderr + run.stdout).replace(str(copy), "the file")
        if run.returncode <= 0 or _NOT_ABOUT_THE_FILE.search(reason):
            return StartVerdict(
                unchecked=(FileProblem("", f"the program exited with status {run.returncode}: {reason}"),), judge=judge
            )
        if missing := _MISSING.findall(reason):
            return StartVerdict(missing=tuple(missing), judge=judge)
        return StartVerdict(refused=(FileProblem("", reason),), judge=judge)


def _run(path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(  # noqa: S603  the user's own program
            [path, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise ValueError(f"{path} cannot be run: {error.strerror}") from None


def _reason(log: str) -> str:
    """Return the last error in a kube-scheduler's log, as one line."""
    errors = _ERROR.findall(log)
    if errors:
        return " ".join(errors[-1].replace('\\"', '"').replace("\\n", " ").replace("\\t", " ").split())
    lines = [line for line in log.splitlines() if line.strip()]
    panics = [line for line in lines if line.startswith("panic:")]
    return (panics or lines or ["no error was printed"])[-1][:500]


def _portable(text: bytes, kubeconfig: Path) -> tuple[bytes, list[FileProblem]]:
    """Replace the paths in a file that exist on the control plane only; return the new text and the removed paths.

    The rest of the text stays the same, so that kube-scheduler parses what the user wrote.
    """
    try:
        decoded, nodes = text.decode(), list(_paths(compose_yaml(text)))
    except ValueError:
        return text, []
    byte_order_mark = decoded.startswith("\ufeff")
    decoded = decoded.removeprefix("\ufeff")
    replaced: list[tuple[int, int, str]] = []
    absent: list[FileProblem] = []
    for path, node in nodes:
        written = decoded[node.start_mark.index : node.end_mark.index]
        if node.style in {"|", ">"} or written.startswith(("&", "!")):
            continue
        if path.startswith("clientConnection"):
            replaced.append((node.start_mark.index, node.end_mark.index, _quoted(str(kubeconfig))))
        elif node.value and not Path(node.value).exists():
            replaced.append((node.start_mark.index, node.end_mark.index, '""'))
            absent.append(FileProblem(path, f"the file {node.value} is not on this machine"))
    for start, end, value in sorted(replaced, reverse=True):
        decoded = decoded[:start] + value + decoded[end:]
    return ("\ufeff" * byte_order_mark + decoded).encode(), absent


def _quoted(text: str) -> str:
    """Return a path as a YAML and JSON string."""
    return orjson.dumps(text).decode()


def _paths(root: yaml.Node | None) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Yield the YAML nodes that name the kubeconfig and the certificate files, each after the path of its key."""
    for node in _texts(_values([root], "clientConnection"), "kubeconfig"):
        yield "clientConnection.kubeconfig", node
    for listed in _values([root], "extenders"):
        for number, extender in enumerate(listed.value if isinstance(listed, yaml.SequenceNode) else ()):
            for key in _FILES:
                for node in _texts(_values([extender], "tlsConfig"), key):
                    yield f"extenders[{number}].tlsConfig.{key}", node


def _values(nodes: Iterable[yaml.Node | None], key: str) -> list[yaml.Node]:
    mappings = (node for node in nodes if isinstance(node, yaml.MappingNode))
    return [value for node in mappings for name, value in node.value if name.value == key]


def _texts(nodes: Iterable[yaml.Node], key: str) -> Iterator[yaml.ScalarNode]:
    """Yield the values of a key, without values that kube-scheduler refuses because they are not strings."""
    for node in _values(nodes, key):
        if isinstance(node, yaml.ScalarNode) and isinstance(scalar_value(node), str):
            yield node
