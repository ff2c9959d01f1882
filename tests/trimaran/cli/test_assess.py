"""``trimaran assess`` of a recorded trace, and its options."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.fake_kubernetes import node, run_fake_kubernetes
from support.refusals import check_refusal

from trimaran.cli.main import main
from trimaran.traces.node_use import NodeUse, write_node_use
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

MINUTES = 300
BEGIN = 1_900_000_000 // 3600 * 3600


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of eight nodes, of which one is hot since minute 200 and one is not measured."""
    folder = tmp_path_factory.mktemp("recordings") / "friday"
    trace = Synthetic(3, 8, MINUTES, 60).trace()
    write_trace(trace, folder)
    cpu = np.full((8, MINUTES), 0.4)
    cpu[2, 200:], cpu[5] = 0.9, np.nan
    write_node_use(NodeUse(trace.nodes, BEGIN, cpu, cpu), folder)
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["assess", *map(str, arguments)])


def test_a_recording_is_assessed(recording: Path, tmp_path: Path) -> None:
    """Text, JSON and page have the hot node, the one without metrics, and the outcomes; the page loads nothing."""
    html = tmp_path / "assessment.html"
    done = run(recording, "--html", html, "--cpu-hour-price", "0.03")
    assert done.exit_code in {0, 3, 4}, done.output
    for words in ("HOT NODES", "kube-scheduler alone", "with the rebalancer", "A MONTH", "NEXT", "-> "):
        assert words in done.stdout
    page = html.read_text()
    assert not re.search(r"<script|src=|href=|@import|url\(", page)
    again = run(recording, "-o", "json")
    document = json.loads(again.stdout)
    assert again.exit_code == done.exit_code
    (hot,) = document["hot_nodes"]
    assert hot["since"] == BEGIN + 60 * 204
    assert hot["node"] in done.stdout
    assert hot["node"] in page
    lost = next(each for each in document["problems"] if "no pod of this node" in each["message"])
    assert lost["subject"] in page
    assert document["cluster"]["monthly_cost"] is None


def test_without_replays_there_are_no_outcomes(recording: Path) -> None:
    """Everything else stays, and the status is 0."""
    done = run(recording, "--no-replay", "-o", "json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert not document["outcomes"]
    assert document["hot_nodes"]


def test_a_trace_without_use_of_nodes_says_so(recording: Path, tmp_path: Path) -> None:
    """A trace of another origin has no use of nodes: it is assessed, and says what it lacks."""
    for file in recording.iterdir():
        if file.name != "node_use.npz":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    done = run(tmp_path, "--no-replay")
    assert done.exit_code == 0
    assert "record it again" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--prometheus", "http://127.0.0.1:1"), "FOLDER"),
        (("--keep", "there"), "FOLDER"),
        (("--cpu-hour-price", "nan"), "finite"),
        (("--config", "/nonexistent"), "/nonexistent"),
        (("--html", "/nonexistent/page.html"), "/nonexistent/page.html"),
    ],
)
def test_unusable_options_are_refused(recording: Path, arguments: tuple[str, ...], word: str) -> None:
    """The status is 2, and the message names the option or the file."""
    check_refusal(run(recording, *arguments), word)


def test_a_broken_recording_is_refused(recording: Path, tmp_path: Path) -> None:
    """A file that is cut off is an error that names it."""
    for file in recording.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes()[: 300 if file.name == "node_use.npz" else None])
    check_refusal(run(tmp_path), "node_use.npz")


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        ((), 1, "--prometheus"),
        (("--last", "1h"), 2, "--last"),
        (("--prometheus", "http://127.0.0.1:1"), 1, "Prometheus at http://127.0.0.1:1"),
        (("--prometheus", "127.0.0.1:1"), 2, "http://"),
    ],
)
def test_a_cluster_without_a_prometheus(tmp_path: Path, arguments: tuple[str, ...], status: int, word: str) -> None:
    """The error is one line that names the way out; nothing is written."""
    with run_fake_kubernetes(tmp_path, nodes={"a": node("a")}) as kubernetes:
        done = run("--kube-config", kubernetes.kube_config(), *arguments)
    check_refusal(done, word, status=status)
