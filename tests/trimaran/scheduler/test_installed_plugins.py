"""Plugins of other packages at every extension point of the scheduler, and what the other commands say of them."""

import ast
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from support.extending import metrics
from support.plugin_packages import register
from support.worlds import small_world

import trimaran.scheduler
from runtime.kubernetes.objects import Container, Node, Pod, ResourceList
from scoring import FilterPlugin, FilterVerdict, MetricsTable, NodeTable, Rows
from trimaran.cli.main import main
from trimaran.plugins import installed_plugins
from trimaran.scheduler.framework.decisions import Bind, Unschedulable, Waiting
from trimaran.scheduler.framework.extension_points import SchedulerHandle, SchedulerPlugin
from trimaran.scheduler.profiles.configuration import read_setup
from trimaran.simulator.policies.standalone import standalone_policy
from trimaran.simulator.replay import Replay

EVERY = """
from dataclasses import dataclass, field
from typing import ClassVar
import numpy as np
from scoring import FilterPlugin, FilterVerdict, PodState
from trimaran.scheduler.framework.extension_points import *

CALLS = []

@dataclass(frozen=True)
class Every(PodState, FilterPlugin, PreEnqueuePlugin, QueueSortPlugin, PreFilterPlugin, PostFilterPlugin, ReservePlugin,
            PermitPlugin, PreBindPlugin, PostBindPlugin):
    refused_node: str = ""
    wait_seconds: float = 0.0
    name: ClassVar[str] = "Every"

    def filter(self, pod, nodes, rows=slice(None)):
        CALLS.append("filter")
        return FilterVerdict(np.array([name != self.refused_node for name in nodes.names])[rows], "refused by Every")

    def pre_enqueue(self, pod):
        CALLS.append("preEnqueue")

    def sort_key(self, pod, queued_at):
        CALLS.append("queueSort")
        return (queued_at,)

    def pre_filter(self, pod, nodes, now):
        CALLS.append("preFilter")

    def post_filter(self, pod, nodes, verdicts, now):
        CALLS.append("postFilter")
        return Rejection("no room")

    def reserve(self, pod, node_name):
        CALLS.append("reserve")

    def unreserve(self, pod, node_name):
        CALLS.append("unreserve")

    def permit(self, pod, node_name, waiting, now):
        CALLS.append("permit")
        return Wait(self.wait_seconds) if self.wait_seconds else None

    def pre_bind(self, pod, node_name):
        CALLS.append("preBind")
        return ()

    def post_bind(self, pod, node_name):
        CALLS.append("postBind")

    def pod_gone(self, uid):
        CALLS.append("gone " + uid)

@dataclass(frozen=True)
class OnlyFilter(FilterPlugin):
    refused_node: str = ""
    name: ClassVar[str] = "OnlyFilter"

    def filter(self, pod, nodes, rows=slice(None)):
        allowed = np.array([name != self.refused_node for name in nodes.names])
        return FilterVerdict(allowed[rows], "refused by OnlyFilter")

@dataclass(frozen=True)
class Unfinished(ReservePlugin):
    name: ClassVar[str] = "Unfinished"

    def reserve(self, pod, node_name):
        return None
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Folder on the path of Python with an installed package of plugins."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "every_point.py").write_text(EVERY)
    installed_plugins.cache_clear()
    yield tmp_path
    installed_plugins.cache_clear()
    sys.modules.pop("every_point", None)


def document(arguments: dict[str, Any], name: str = "Every", **plugins: list[str]) -> dict[str, Any]:
    """Return a configuration with plugins enabled, by extension point, and arguments of one of them."""
    sets: dict[str, Any] = {point: {"enabled": [{"name": each} for each in names]} for point, names in plugins.items()}
    sets["queueSort"] = {**sets.get("queueSort", {}), "disabled": [{"name": "PrioritySort"}]}
    profile = {"schedulerName": "ours", "plugins": sets, "pluginConfig": [{"name": name, "args": arguments}]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile],
    }  # fmt: skip


def both(site: Path) -> None:
    register(site, "every-point", "Every = every_point:Every\nOnlyFilter = every_point:OnlyFilter")


def decide(setup, seconds: float = 1.0):
    """Return the first decision on a pod among two nodes, and the scheduler."""
    scheduler, amounts = setup.scheduler(0), ResourceList({"cpu": 4000, "memory": 1 << 33, "pods": 10})
    scheduler.replace_nodes([Node(name, amounts, amounts) for name in ("a", "b")], 0.0)
    containers = (Container(ResourceList({"cpu": 100}), ResourceList()),)
    scheduler.put_pod(Pod("p", uid="p", scheduler_name="ours", containers=containers), 0.0)
    return scheduler.next(seconds), scheduler


def test_it_is_called_at_every_point(site):
    """A plugin at multiPoint is called at every extension point that it implements, one object for all of them."""
    both(site)
    setup = read_setup(document({"refusedNode": "b"}, multiPoint=["Every"]))
    made, scheduler = decide(setup)
    assert isinstance(made, Bind)
    assert made.node_name == "a"
    scheduler.bound("p")
    (profile,) = setup.profiles
    (scored,) = (each.plugin for each in profile.scores.plugins if each.plugin.name == "Every")
    assert profile.filters[-1] is scored
    assert profile.permit == profile.reserve[-1:] == profile.pre_bind[-1:] == profile.post_bind[-1:] == (scored,)
    calls = set(sys.modules["every_point"].CALLS)
    expected = {"preEnqueue", "queueSort", "preFilter", "filter", "reserve", "permit", "preBind", "postBind"}
    assert calls == expected
    scheduler.drop_pod("p", 2.0)
    assert sys.modules["every_point"].CALLS[-1] == "gone p"


def test_a_pod_waits_for_its_permit(site):
    """A pod that an installed plugin lets wait is not bound at once."""
    both(site)
    made, scheduler = decide(read_setup(document({"waitSeconds": 5}, permit=["Every"])))
    assert isinstance(made, Waiting)
    assert list(scheduler.waiting.by_uid) == ["p"]


def test_a_pure_filter_filters(site):
    """A plugin that only filters works by its name, in the scheduler and in a replay."""
    both(site)
    config = document({"refusedNode": "a"}, "OnlyFilter", filter=["OnlyFilter"])
    made, _ = decide(read_setup(config))
    assert isinstance(made, Bind)
    assert made.node_name == "b"
    trace = small_world(2, [("Deployment", 0.5)] * 3)
    everywhere = Replay(trace, standalone_policy("mine", document({}, "OnlyFilter", multiPoint=["OnlyFilter"]))).run()
    assert not everywhere.unplaced


class CoolNodes(FilterPlugin, SchedulerPlugin):
    """Filter that refuses nodes that are measured hot."""

    name = "CoolNodes"
    reads_metrics = True

    def attach(self, handle: SchedulerHandle) -> None:
        self.handle = handle

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = slice(None)) -> FilterVerdict:
        cpu = self.handle.metrics(nodes).of("CPU")
        return FilterVerdict(~(cpu.valid & (cpu.average > 70))[rows], "hot")


@pytest.mark.parametrize("reads", [True, False])
def test_new_metrics_requeue_the_pods_that_a_filter_refused_by_them(monkeypatch, reads):
    """A filter gets the newest metrics, of new nodes, too; only one that asks for them has its pods tried again."""
    monkeypatch.setattr(CoolNodes, "reads_metrics", reads)
    setup = read_setup(document({}, "NodeName", filter=["NodeName"]))
    setup = replace(setup, profiles=tuple(replace(each, filters=(CoolNodes(),)) for each in setup.profiles))
    assert setup.profiles[0].reads_load == reads
    scheduler, amounts = setup.scheduler(0), ResourceList({"cpu": 4000, "memory": 1 << 33, "pods": 10})

    def publish(**loads: float) -> None:
        scheduler.use_load(MetricsTable.align(metrics(loads), scheduler.state.table))

    scheduler.put_node(Node("a", amounts, amounts), 0.0)
    publish(a=90, b=10)
    scheduler.put_pod(Pod("p", uid="p", scheduler_name="ours"), 0.0)
    refused = scheduler.next(1.0)
    assert isinstance(refused, Unschedulable)
    assert refused.reasons == {"hot": 1}
    assert scheduler.next(100.0) is None
    publish(a=95, b=10)
    assert isinstance(scheduler.next(200.0), Unschedulable) == reads
    scheduler.put_node(Node("b", amounts, amounts), 200.0)
    bound = scheduler.next(300.0)
    assert isinstance(bound, Bind)
    assert bound.node_name == "b"


def test_an_unknown_argument_of_a_pure_filter_is_refused(site):
    """A typo in the arguments of a plugin that does not score is an error with its path."""
    both(site)
    with pytest.raises(ValueError, match=r"^OnlyFilterArgs\.refusdNode: "):
        read_setup(document({"refusdNode": "a"}, "OnlyFilter", filter=["OnlyFilter"]))


def test_an_unfinished_class_is_refused(site):
    """A class without a method of its base class is one line that names the method."""
    register(site, "every-point", "Unfinished = every_point:Unfinished")
    with pytest.raises(ValueError, match="unreserve"):
        installed_plugins()


@pytest.mark.parametrize(
    "command",
    [
        ["extender", "config", "{file}", "--kubernetes-version", "1.36"],
        ["simulate", "compare", "--policy", "mine={file}", "--policy", "default", "--trace", "{site}/none"],
        ["score", "--config", "{file}", "--pod", "examples/pod.yaml", "--nodes", "examples/nodes.yaml", "--watcher",
         "http://127.0.0.1:9"],
    ],
)  # fmt: skip
def test_commands_say_what_they_do_not_call(site, command):
    """A command that only scores says which installed plugins a file enables at other points."""
    both(site)
    file = site / "scheduler.yaml"
    plugins = {
        "score": {"enabled": [{"name": "Every"}]},
        "filter": {"enabled": [{"name": "Every"}, {"name": "OnlyFilter"}]},
    }
    file.write_text(yaml.safe_dump({**document({}), "profiles": [{"plugins": plugins}]}))
    done = CliRunner().invoke(main, [each.format(file=file, site=site) for each in command])
    for name in ("Every", "OnlyFilter"):
        assert f"profiles[0].plugins: {name} " in done.stderr
    checked = CliRunner().invoke(main, ["config", "check", str(file), "--kubernetes-version", "1.36"])
    assert "profiles[0].plugins: Every " in checked.output


def test_there_is_one_registry():
    """Plugins of the scheduler are listed in its registry, and those of packages are found in one function."""
    root = Path(trimaran.scheduler.__file__).parent
    builds = (root / "profiles" / "profile_builder.py").read_text()
    imported = {node.module for node in ast.walk(ast.parse(builds)) if isinstance(node, ast.ImportFrom) and node.module}
    plugins = {name for name in imported if name.startswith(("trimaran.scheduler.plugins.", "scoring.plugins."))}
    kinds = {"scoring.plugins.base", "scoring.plugins.filtering", "trimaran.scheduler.plugins.arguments"}
    assert plugins - kinds == {"trimaran.scheduler.plugins.volumes.capacity_score"}
    found = [
        str(path) for path in root.parent.rglob("*.py") if "entry_points(group=ENTRY_POINT_GROUP)" in path.read_text()
    ]
    assert [Path(path).name for path in found] == ["plugins.py"]
