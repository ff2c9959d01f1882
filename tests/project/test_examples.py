"""The examples: they run unchanged."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.page import watched_day
from support.worlds import small_world

from client import connect
from scoring import NodeTable, Pod
from trimaran.simulator.policies.standalone import StandalonePolicy
from trimaran.simulator.replay import Replay
from watcher.settings import FakeSettings, ProviderSettings, Settings

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example as a program."""
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_scheduler_plugin_embeds_a_watcher():
    """Without an address the example embeds a watcher, and places both pods with an explanation."""
    result = run(str(EXAMPLES / "scheduler_plugin.py"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("LoadVariationRiskBalancing: default/web-") == 2
    assert "'web-0':" in result.stdout
    assert "'web-1':" in result.stdout


def test_the_scheduler_plugin_spreads_a_gang(monkeypatch, tmp_path):
    """Recently placed pods count, so nine pods do not all go to the node that is idle in the metrics."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from scheduler_plugin import LoadAwarePlacement, _node, _pod

    loads = {name: {"cpu": {"average": 20 + place, "deviation": 0}} for place, name in enumerate("abc")}
    file = tmp_path / "loads.json"
    file.write_text(json.dumps(loads))
    placement = LoadAwarePlacement(
        connect(settings=Settings(provider=ProviderSettings(name="Fake"), fake=FakeSettings(file=file)))
    )
    placement.start()
    try:
        nodes = NodeTable.from_k8s([_node(name) for name in "abc"], [])
        placed = placement.place([Pod.from_k8s(_pod(f"web-{number}")) for number in range(9)], nodes)
    finally:
        placement.stop()
    assert sorted(placed.values()) == sorted("abc" * 3)


@pytest.mark.parametrize(("address", "status"), [("foo", 2), ("http://127.0.0.1:1", 1)])
def test_the_scheduler_plugin_refuses_an_address_that_cannot_be_used(address, status):
    """An address without http:// or without a watcher ends the example with one line that names it."""
    result = run(str(EXAMPLES / "scheduler_plugin.py"), "--watcher", address)
    assert result.returncode == status
    assert address in result.stderr
    assert "Traceback" not in result.stderr


def test_the_readmes_python_runs(watch, tmp_path):
    """The README's program explains the best node, with the nodes and the pod of the examples."""
    service = watch("--provider", "Fake")
    service.wait_for("/watcher")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (text,) = re.findall(r"```python\n(.*?)```", (EXAMPLES.parent / "README.md").read_text(), flags=re.DOTALL)
    command = [sys.executable, "-c", text.replace("http://127.0.0.1:2020", service.url)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("default/web")
    assert "no metrics" not in result.stdout


@pytest.mark.slow
def test_the_notebook_runs(monkeypatch, tmp_path):
    """Each cell of the notebook runs on a watcher with a day of history, and shows its metrics."""
    import nbclient
    import nbformat

    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    with watched_day(tmp_path, 3) as (service, _):
        monkeypatch.setenv("TRIMARAN_WATCHER_ADDRESS", service.url)
        monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
        resources = {"metadata": {"path": str(EXAMPLES)}}
        client = nbclient.NotebookClient(notebook, timeout=60, resources=resources)
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            asyncio.run(client.async_execute())  # execute() would leave its event loop
        finally:
            signal.signal(signal.SIGINT, interrupt)  # nbclient lets it interrupt, also where it was ignored
    shown = [
        output["data"] if "data" in output else {"text/plain": output["text"]}
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]
    text = "\n".join(data["text/plain"] for data in shown)
    assert "WatcherMetrics(15m of 3 nodes from Fake" in text
    assert "(3, 145)" in text  # a day in steps of ten minutes
    assert "History(CPU AVG, CPU STD, Memory AVG, Memory STD of 1 node, 73 x 300 s from" in text
    assert "1 x " in text  # the explanation
    tables = [data["text/html"] for data in shown if "text/html" in data]
    assert len(tables) == 6
    assert all("<table" in table for table in tables)
    placed = next(data["text/plain"] for data in reversed(shown))
    assert sorted(int(number) for number in re.findall(r"web-(\d)", placed)) == list(range(6))


def test_notebooks_are_committed_without_output():
    """The notebook has no outputs, which would depend on the machine and the time."""
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_plugin_of_the_scheduler_keeps_pods_off_hot_nodes(monkeypatch):
    """In a replay CoolNodes refuses the node that is measured hot."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "scheduler", raising=False)
    from scheduler import with_plugin

    # By requests the last pod goes to the first node, which has more room and is hot.
    trace = small_world(2, [("Deployment", 1.9), ("Deployment", 1.9), ("Deployment", 0.1), ("Deployment", 0.1)], 60)
    trace = replace(trace, arrival_minute=np.array([0, 0, 0, 30]), cpu_capacity_milli=np.array([5000, 1900]))
    trace = replace(trace, cpu_request_milli=np.array([2000, 2000, 1700, 100]))
    document = {"kind": "KubeSchedulerConfiguration", "apiVersion": "kubescheduler.config.k8s.io/v1"}
    policies = [StandalonePolicy("mine", document, adapt=adapt) for adapt in (None, with_plugin)]
    placed = [[run.node for run in Replay(trace, policy).run().cluster.pod_runs] for policy in policies]
    assert placed == [[0, 0, 1, 0], [0, 0, 1, 1]]
