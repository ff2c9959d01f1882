"""Tests of the commands with files and services that try to end the process or to control the terminal."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.refusals import check_refusal
from support.servers import reply, serving

from trimaran.cli.main import main

EXAMPLES = Path(__file__).parents[3] / "examples"
DEEP = "- " * 32_000  # ends a process that uses libyaml's loader with SIGSEGV
KUBECTL = f"--pod={EXAMPLES / 'pod.yaml'}", f"--nodes={EXAMPLES / 'nodes.yaml'}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "--watcher=http://127.0.0.1:1", "--pod={}", KUBECTL[1]),
        ("score", "--watcher=http://127.0.0.1:1", KUBECTL[0], "--nodes={}"),
        ("score", "--watcher=http://127.0.0.1:1", *KUBECTL, "--pods={}"),
        ("score", "--watcher=http://127.0.0.1:1", *KUBECTL, "--config={}"),
        ("place", "--nodes={}", "--pods={}"),
        ("config", "check", "{}"),
        ("extender", "config", "{}", "--url=http://127.0.0.1:1", "--kubernetes-version=1.37"),
        ("extender", "--set=extender.config={}", "--set=cluster.watcher=http://127.0.0.1:1"),
        ("doctor", "--provider=Fake", "--nodes={}"),
        ("doctor", "--provider=KubernetesMetricsServer", "--set=provider.kube_config={}"),
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_deep_yaml_is_an_error(tmp_path, arguments):
    """Every command that reads YAML refuses 63 KB of nested sequences with a message, instead of crashing."""
    file = tmp_path / "deep.yaml"
    file.write_text(DEEP)
    result = CliRunner().invoke(main, [argument.format(file) for argument in arguments])
    assert result.exit_code in {1, 2}, result.output
    assert not isinstance(result.exception, Exception), result.exception
    assert "100 nested levels" in result.output or "is not a kubeconfig" in result.output


EVIL = "x\x1b]0;title\x07\x1b[2J\x9b31m\r\x7f\u202ey\nforged: line\n"
NOW = int(time.time())
METRICS = [{"name": EVIL, "type": type_, "operator": "AVG", "rollup": "15m", "value": 20.5} for type_ in ("CPU", EVIL)]
WATCHER = {
    "timestamp": NOW,
    "window": {"duration": "15m", "start": NOW - 900, "end": NOW},
    "source": EVIL,
    "data": {
        EVIL: {
            "metrics": METRICS, "tags": {EVIL: EVIL}, "metadata": {"grade": EVIL, "pool": EVIL, "suspect": EVIL},
        }
    },
}  # fmt: skip
DECISION = {
    "pod": EVIL, "scheduler": EVIL, "at": NOW, "mode": "active", "outcome": EVIL, "candidates": EVIL,
    "in_flight": EVIL, "data": {"window": EVIL, "source": EVIL, "age_seconds": 1.0},
    "best": {"node": EVIL, "score": EVIL}, "after": None,
    "chosen": {"node": EVIL, "score": EVIL, "rank": EVIL, "margin": 1},
    "nodes": [
        {"chosen": True, "name": EVIL, "answered": EVIL, "grade": EVIL,
         "plugins": [{"name": EVIL, "score": EVIL, "why": EVIL}]},
    ],
}  # fmt: skip
ROW = {
    "scheduler": EVIL, "mode": EVIL, "pods": EVIL, "same_node": EVIL, "chosen_percent": 1.0, "best_percent": 1.0,
    "regret": 1.0, "regret_p95": 1.0, "chosen_hot": EVIL, "best_hot": EVIL,
}  # fmt: skip
REGRETS = {"schedulers": [ROW], "waiting": EVIL, "left_out": EVIL, "hot_percent": 1.0}
EXTENDER = {"/explain": DECISION, "/regret": REGRETS}


@contextmanager
def hostile() -> Iterator[str]:
    """Run a watcher and extender whose every text contains control characters and a forged line."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        if path.startswith("/watcher") or path in EXTENDER:
            reply(handler, json.dumps(EXTENDER.get(path, WATCHER)))
        else:
            reply(handler, json.dumps({"error": {"code": EVIL, "message": EVIL}}), 404)

    with serving(answer) as fake:
        yield fake.url


def hostile_files(folder: Path) -> tuple[str, str, str]:
    """Write nodes, pods and one pod whose every text contains control characters; return the paths."""
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "10", EVIL: "1"}
    nodes = [
        {
            "kind": "Node",
            "metadata": {"name": name, "labels": {EVIL: EVIL}},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
        for name in (EVIL, "ordinary")
    ]
    pods = [
        {
            "kind": "Pod",
            "metadata": {"name": f"{EVIL}{cpu}", "namespace": EVIL},
            "spec": {"schedulerName": EVIL, "containers": [{"name": EVIL, "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Pending"},
        }
        for cpu in ("100m", "900")
    ]
    for name, items in (("nodes", nodes), ("pods", pods), ("pod", pods[:1])):
        (folder / name).write_text(json.dumps({"kind": "List", "items": items}))
    return str(folder / "nodes"), str(folder / "pods"), str(folder / "pod")


@pytest.mark.parametrize(
    "arguments",
    [
        ("top", "--watcher={url}"),
        ("top", "--watcher={url}", "-owide"),
        ("top", "--watcher={url}", "-ojson"),
        ("top", "--watcher={url}", "-oyaml"),
        ("top", "--watcher={url}", EVIL),
        ("top", "--watcher={url}/nothing"),
        ("score", "--watcher={url}", "--pod={pod}", "--nodes={nodes}"),
        ("score", "--watcher={url}", "--pod={pod}", "--nodes={nodes}", "--explain", "--fallback=off"),
        ("score", "--watcher={url}", "--pod={pod}", "--nodes={nodes}", "-oyaml"),
        ("score", "--watcher={url}", "--pod={pod}", "--nodes={nodes}", "-owide", "--pods={pods}"),
        ("score", "--watcher={url}", "--pod={bad}", "--nodes={nodes}"),
        ("place", "--nodes={nodes}", "--pods={pods}", "--seconds=0.1"),
        ("place", "--nodes={nodes}", "--pods={pods}", "--seconds=0.1", "--output=json"),
        ("place", "--nodes={bad}", "--pods={pods}"),
        ("compare", "{url}", "{url}"),
        ("explain", "a/b", "--extender={url}"),
        ("explain", "a/b", "--extender={url}", "-ojson"),
        ("explain", "a/b", "--extender={url}/nothing"),
        ("extender", "regret", "--extender={url}"),
        ("extender", "regret", "--extender={url}", "-oyaml"),
        ("doctor", "--watcher={url}"),
        ("doctor", "--watcher={url}", "-ojson", "--nodes={nodes}"),
        ("config", "check", "{bad}"),
        ("extender", "config", "{bad}", "--url={url}", "--kubernetes-version=1.37"),
    ],
    ids=lambda arguments: ascii(" ".join(arguments))[:40],
)
def test_no_control_characters_reach_the_terminal(tmp_path, arguments):
    """Names and messages from files and services are printed without control characters, each on its own line."""
    nodes, pods, pod = hostile_files(tmp_path)
    (tmp_path / "bad").write_text(json.dumps({"kind": EVIL, EVIL: {EVIL: EVIL}}))
    with hostile() as url:
        texts = {"url": url, "nodes": nodes, "pods": pods, "pod": pod, "bad": str(tmp_path / "bad")}
        result = CliRunner().invoke(main, [argument.format(**texts) for argument in arguments])
    assert not isinstance(result.exception, Exception), result.exception
    assert "\\x1b]0;title" in result.output or "\\u001b]0;title" in result.output or "\\e]0;title" in result.output
    assert result.output.replace("\n", "").isprintable(), ascii(result.output)
    assert not re.search("^forged", result.output, re.MULTILINE), ascii(result.output)


def test_colors_are_not_escaped(monkeypatch):
    """On a terminal our own colors reach it, and the text in them is escaped."""
    monkeypatch.setattr("runtime.terminal._is_terminal", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with hostile() as url:
        result = CliRunner().invoke(main, ["top", "--watcher", url, EVIL], color=True)
    assert "\x1b[1mx\\x1b]0;title" in result.output
    assert "\x1b]" not in result.output


@pytest.mark.parametrize("document", ["[]", "{}", '{"outcome": 1, "pod": 1, "nodes": 1}', '{"outcome":"a","at":1e300}'])
@pytest.mark.parametrize("arguments", [("explain", "a/b"), ("extender", "regret")])
def test_an_extender_with_other_content_is_an_error(arguments, document):
    """A response with other keys and types than an extender's ends with status 1 and the address."""
    with serving(lambda handler: reply(handler, document)) as fake:
        result = CliRunner().invoke(main, [*arguments, "--extender", fake.url])
    check_refusal(result, fake.url, status=1)
